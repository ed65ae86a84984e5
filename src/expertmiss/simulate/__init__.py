"""The simulator: policies over recorded traces."""
