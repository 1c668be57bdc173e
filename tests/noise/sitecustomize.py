"""What Python imports first in every process that a test starts (PYTHONPATH names this folder)."""

import importlib.machinery
import importlib.util
import os
import sys

import fixed_noise

if fixed_noise.VARIABLE in os.environ:
    fixed_noise.install()

# The one that Python would have imported otherwise: of this machine, or of a mutant.
_HERE = os.path.dirname(os.path.abspath(__file__))
_next = importlib.machinery.PathFinder.find_spec(__name__, [path for path in sys.path if path != _HERE])
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))
