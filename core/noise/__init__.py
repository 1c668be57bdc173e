"""The one door to randomness, exact samplers, and the noises that a release can use."""
