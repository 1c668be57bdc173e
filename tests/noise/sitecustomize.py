"""What Python imports first in every process that a test starts (PYTHONPATH names this folder)."""

import os

import fixed_noise

if fixed_noise.VARIABLE in os.environ:
    fixed_noise.install()
