"""Which expert misses are worth waiting for? Substitution and caching for Mixture-of-Experts inference."""

__version__ = "0.1.0"
