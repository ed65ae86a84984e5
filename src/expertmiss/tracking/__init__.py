"""MLflow as a mirror of ``results/``: it can be deleted and rebuilt, and only :mod:`expertmiss.tracking.sync` writes it."""

from expertmiss.tracking.projection import content

__all__ = ["content"]
