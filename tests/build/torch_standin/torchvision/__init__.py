"""Networks: none."""
