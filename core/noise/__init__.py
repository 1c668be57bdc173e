"""The only source of randomness, exact samplers, and the noises that a release can use."""
