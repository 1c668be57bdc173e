"""python -m tests.second_reader N: the two readers on N random sketches."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.second_reader.test_second_reader import KEYS, agree, answers_agree, random_sketch

if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for seed in range(wanted):
        with tempfile.TemporaryDirectory() as folder:
            random_sketch(seed, Path(folder, "random.sketch"))
            agree(Path(folder, "random.sketch"), KEYS)
            answers_agree(Path(folder, "random.sketch"), KEYS)
    print(f"{wanted} random sketches: the readers agree")
