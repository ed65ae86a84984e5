"""Models: loading, router adapters, training of the built-in model, and its card."""
