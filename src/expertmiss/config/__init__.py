"""Configuration: dataclasses define every option, YAML only chooses values, Hydra composes."""

from expertmiss.config.compose import compose, section

__all__ = ["compose", "section"]
