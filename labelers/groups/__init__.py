"""The labels, one module for each group of them."""
