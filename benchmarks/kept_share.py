"""How many records it takes until `kept_share` says something: `python -m benchmarks.kept_share`.

Users are Pareto (tail 1.2, about ten records each), all keys of a user are different, C = 8 and ε = 1.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram.kept_share import release_kept, tally_kept


def main() -> None:
    """Print records, share of ε, how often a share is shown, its median ± and the largest user that it covers."""
    print("records     share of ε   shown   median ±   users with up to   share (exact of these)")
    for users in (5_000, 20_000, 50_000, 200_000, 1_000_000):
        rng = np.random.default_rng(1)
        totals = np.minimum(rng.pareto(1.2, users) * 2 + 1, 100_000).astype(np.int64)
        tokens = np.repeat(rng.integers(0, 1 << 63, users, dtype=np.uint64), totals)
        keys = rng.integers(0, 1 << 63, len(tokens), dtype=np.uint64)
        rows = Contributions(tokens, tokens, keys, np.ones(len(tokens), np.int64))
        tally = tally_kept(rows, Bounds(8, 1))
        for share in (Fraction(1, 100), Fraction(1, 10)):
            keyed = (ReleaseKey(i.to_bytes(32, "big")) for i in range(40))
            found = [each for key in keyed if (each := release_kept(tally, share, key).estimate(8))]
            line = f"{len(tokens):>10,}  {float(share):>10}  {len(found) / 40:>6.0%}"
            if found:
                width = float(np.median([(each.high - each.low) / 2 for each in found]))
                end = int(np.median([each.up_to for each in found]))
                held = totals[totals <= end]
                line += f"  {width:>9.3f}  {end:>17,}  {np.minimum(held, 8).sum() / held.sum():>10.0%}"
            print(line)


if __name__ == "__main__":
    main()
