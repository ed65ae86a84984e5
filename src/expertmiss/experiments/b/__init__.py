"""Experiment B: at equal substituted gate mass, do few heavy substitutions cost more than many light ones?"""
