"""Figures, one file each, drawn from the statistics tables and never from raw data."""
