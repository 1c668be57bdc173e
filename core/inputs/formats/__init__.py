"""Input formats: one module each."""
