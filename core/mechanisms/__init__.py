"""Mechanisms beside the sparse histogram: sparse vector, multiplicative weights, selection, clipping, surveys."""
