"""Experiment E5: time and perplexity of the same run, on the engine."""
