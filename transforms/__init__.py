"""Beam stages: each wires core functions on arrays, and none imports another."""
