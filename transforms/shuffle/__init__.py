"""Shared by stages: records as batches, coders and spill files, shards and combining."""
