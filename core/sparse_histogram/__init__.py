"""The release of a sparse histogram: parameters, guarantee, plan, per-shard steps, and the release in memory."""
