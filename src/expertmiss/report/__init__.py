"""The report of an experiment: one self-contained page, its figures, tables and numbers."""
