"""Deciding which keys of the data a release may name."""
