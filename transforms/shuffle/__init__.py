"""What stages share: batches, coders, combining, sharding, and spill files on one machine."""
