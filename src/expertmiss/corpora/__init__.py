"""Text: pinned packages and generators, documents, splits, tokens."""
