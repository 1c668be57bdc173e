"""What a person runs: the command line, configs, and the jobs that join the stages."""

import os

# Matrices are small here: on a busy machine a second thread waits, by turning, longer than it works.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
