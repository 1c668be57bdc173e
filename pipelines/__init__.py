"""The command line, configs, and the jobs that connect the stages."""

import os

# Matrices are small here: a second BLAS thread would spin longer than it computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
