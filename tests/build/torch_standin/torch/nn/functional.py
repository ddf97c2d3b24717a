"""Functions: none."""
