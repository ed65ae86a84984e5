"""What every evaluation of a loss leaves out."""

FIRST_TARGET = 16
"""Targets after a reset that are left out of every NLL, in every arm (definitions, State)."""
