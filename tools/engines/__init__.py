"""Real engines on one machine: a standalone Flink cluster, Prism, and Python workers that hold only the
wheel.

`provision` fetches and builds what is needed once, into a cache outside the repository; `flink`, `prism` and
`workers` start and stop processes, all on the loopback interface, all in a directory that the caller names.
"""
