"""Neighbouring data through the exact half of every job: see `tests.neighbours.machine`."""
