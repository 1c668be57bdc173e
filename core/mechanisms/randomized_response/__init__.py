"""Randomized response: the local model, and linear queries over its table."""
