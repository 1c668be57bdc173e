"""Encodings of the counts below the threshold: one module each."""
