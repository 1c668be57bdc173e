"""The breaches. Each is what a tired or clever person might write."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BREACHES", "Breach"]


@dataclass(frozen=True)
class Breach:
    """One text of one file, what stands there instead, and the tests that must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


BREACHES: tuple[Breach, ...] = (
    Breach(
        "Laplace scale halved",
        "core/noise/laplace.py",
        "sensitivity.l1 / epsilon for",
        "sensitivity.l1 / epsilon / 2 for",
        ("tests/privacy/test_threshold.py",),
    ),
    Breach(
        "L2 where L1 counts",
        "core/noise/noises.py",
        '        """The largest ‖x − x\'‖₁: C."""\n        return self.max_contributions',
        '        """The largest ‖x − x\'‖₁: C."""\n        return int(self.l2_squared**0.5)',
        ("tests/privacy/test_threshold.py",),
    ),
    Breach(
        "L2 of the worst split forgotten",
        "core/noise/noises.py",
        "full * self.max_per_key**2 + rest**2",
        "full * self.max_per_key + rest",
        ("tests/privacy/test_gaussian.py",),
    ),
    Breach(
        "threshold one too low",
        "core/sparse_histogram/threshold.py",
        "noisy >= threshold",
        "noisy >= threshold - 1",
        ("tests/privacy/test_threshold.py",),
    ),
    Breach(
        "empty cells get no noise",
        "core/sparse_histogram/threshold.py",
        "found = np.concatenate([part.fingerprints[kept], zeros[free]])",
        "free[:] = False\n    found = np.concatenate([part.fingerprints[kept], zeros[free]])",
        ("tests/privacy/test_threshold.py",),
    ),
    Breach(
        "delta without the split into ones",
        "core/sparse_histogram/threshold.py",
        "splits = [{1: most}, {per_key",
        "splits = [{per_key",
        ("tests/privacy/test_threshold.py",),
    ),
    Breach(
        "delta counted with >",
        "core/sparse_histogram/threshold.py",
        "threshold - part)(iv)",
        "threshold - part + 1)(iv)",
        ("tests/privacy/test_threshold.py",),
    ),
    Breach(
        "sizing for half of the sensitivity",
        "core/sparse_histogram/sizing.py",
        "return 2 * max_contributions",
        "return max_contributions",
        ("tests/privacy/test_sizing.py",),
    ),
    Breach(
        "true sizes released",
        "core/sparse_histogram/sizing.py",
        "released = (exact + noise).tolist()",
        "released = exact.tolist()",
        ("tests/privacy/test_sizing.py",),
    ),
    Breach(
        "sizes drawn without the data's digest",
        "core/sparse_histogram/steps.py",
        "noise_key = release_key.for_data(data_digest)",
        "noise_key = release_key",
        ("tests/transforms/test_plan_release.py",),
    ),
    Breach(
        "noise drawn without the data's digest",
        "core/sparse_histogram/steps.py",
        "return release_key.for_data(self.data_digest)",
        "return release_key",
        ("tests/transforms/test_plan_release.py",),
    ),
    Breach(
        "a record protected, a user promised",
        "core/sparse_histogram/steps.py",
        'return "record" if users is None else "user"',
        'return "user"',
        ("tests/pipelines/jobs/test_guarantees.py",),
    ),
    Breach(
        "a user's keys not kept apart under Gaussian noise",
        "core/sparse_histogram/steps.py",
        "return None if count is None else Apart(",
        "return None if count is not None else Apart(",
        ("tests/core/encodings", "tests/privacy/test_apart.py", "tests/core/sparse_histogram"),
    ),
    Breach(
        "ALP for one contribution",
        "core/encodings/alp.py",
        "return max_contributions * iv.log(",
        "return iv.log(",
        ("tests/privacy/test_alp.py",),
    ),
    Breach(
        "ALP leaves set bits alone",
        "core/encodings/alp.py",
        'return flip_bits(packed, flip, release_key.source("response", block, digest(packed)))',
        'return packed | flip_bits(packed, flip, release_key.source("response", block, digest(packed)))',
        ("tests/privacy/test_alp.py",),
    ),
    Breach(
        "one stream for all blocks",
        "core/encodings/alp.py",
        'release_key.source("response", block, digest(packed))',
        'release_key.source("response", 0, b"")',
        ("tests/privacy/test_alp.py", "tests/core/encodings"),
    ),
    Breach(
        "rounding down instead of at random",
        "core/encodings/alp.py",
        "np.minimum(rand_round(np.minimum(part.counts, cap), width, source), levels)",
        "np.minimum((np.minimum(part.counts, cap) / float(width)).astype(np.int64), levels)",
        ("tests/privacy/test_alp.py", "tests/core/noise/test_entropy.py"),
    ),
    Breach(
        "no noise on empty buckets",
        "core/encodings/buckets.py",
        "noisy = cells + noise_of(self.noise).sample(self.scale, len(cells), source)",
        "noisy = cells + noise_of(self.noise).sample(self.scale, len(cells), source) * (cells > 0)",
        ("tests/privacy/test_buckets.py",),
    ),
    Breach(
        "one stream for all blocks of buckets",
        "core/encodings/buckets.py",
        'release_key.source("buckets", block, digest(cells))',
        'release_key.source("buckets", 0, b"")',
        ("tests/privacy/test_buckets.py", "tests/core/encodings"),
    ),
    Breach(
        "L-infinity not enforced",
        "core/exact/contributions.py",
        "return np.minimum(self.counts, max_per_key)",
        "return self.counts",
        ("tests/core/exact/test_histogram.py",),
    ),
    Breach(
        "C not enforced",
        "core/exact/contributions.py",
        "np.maximum(max_contributions - used, 0)",
        "np.maximum(max_contributions - used, 1)",
        ("tests/core/exact/test_histogram.py",),
    ),
    Breach(
        "users told apart by half of their token",
        "core/exact/contributions.py",
        "first_of_user = changes(high) | changes(low)",
        "first_of_user = changes(high) & changes(low) & False | (np.arange(len(high)) == 0)",
        ("tests/core/exact/test_histogram.py",),
    ),
    Breach(
        "delta counted once for two uses",
        "core/noise/gaussian.py",
        "return delta * 3 / 4, delta / 4",
        "return delta, delta",
        ("tests/core/sparse_histogram", "tests/core/encodings", "tests/privacy/test_gaussian.py"),
    ),
    Breach(
        "Gaussian loss halved",
        "core/noise/gaussian.py",
        "l2 / (2 * scale * scale)",
        "l2 / (8 * scale * scale)",
        ("tests/privacy/test_gaussian.py",),
    ),
    Breach(
        "Gaussian proposals all accepted",
        "core/noise/discrete_gaussian.py",
        "kept = proposed[_accepted(proposed, scale, source)][: size - filled]",
        "kept = proposed[: size - filled]",
        ("tests/core/noise/test_discrete_gaussian.py",),
    ),
    Breach(
        "geometric digits correlated",
        "core/noise/sampling.py",
        "return geometric(scale, size, source) - geometric(scale, size, source)",
        "one = geometric(scale, size, source)\n    return one - one // 2",
        ("tests/core/noise/test_sampling.py",),
    ),
    Breach(
        "a second door to randomness",
        "core/sparse_histogram/threshold.py",
        "from fractions import Fraction\n",
        "import random  # noqa: F401\nfrom fractions import Fraction\n",
        ("tests/core/noise/test_entropy.py",),
    ),
    Breach(
        "a float on the release path",
        "core/sparse_histogram/sizing.py",
        "released = (exact + noise).tolist()",
        "released = (exact + noise * 1.0).astype(np.int64).tolist()",
        ("tests/core/noise/test_entropy.py",),
    ),
    Breach(
        "the same key for every release",
        "core/noise/entropy.py",
        "return cls(os.urandom(_KEY_BYTES))",
        "return cls(bytes(_KEY_BYTES))",
        ("tests/core/noise/test_entropy.py",),
    ),
    Breach(
        "streams of steps are the same",
        "core/noise/entropy.py",
        'len(name).to_bytes(4, "little") + name + shard',
        'len(name).to_bytes(4, "little") + shard',
        ("tests/core/noise/test_entropy.py",),
    ),
    Breach(
        "streams ignore the data",
        "core/noise/entropy.py",
        'shard.to_bytes(8, "little") + context',
        'shard.to_bytes(8, "little")',
        ("tests/core/noise/test_entropy.py",),
    ),
    Breach(
        "the key is printed",
        "core/noise/entropy.py",
        'return "ReleaseKey(secret)"',
        'return f"ReleaseKey({self._secret.hex()})"',
        ("tests/core/noise/test_entropy.py",),
    ),
    Breach(
        "sparse vector without threshold noise",
        "core/svt/mechanism.py",
        "return int(discrete_laplace(self._noise.threshold, 1, self._source)[0])",
        "return 0",
        ("tests/core/svt/test_mechanism.py", "tests/privacy/test_svt_enumeration.py"),
    ),
    Breach(
        "values with the noise of queries",
        "core/svt/mechanism.py",
        "return discrete_laplace(self._noise.value, size, self._source)",
        "return discrete_laplace(self._noise.query / 8, size, self._source)",
        ("tests/core/svt/test_mechanism.py", "tests/privacy/test_svt_enumeration.py"),
    ),
    Breach(
        "more answers than the cutoff",
        "core/svt/mechanism.py",
        "return self.count >= self.params.cutoff",
        "return self.count > self.params.cutoff",
        ("tests/core/svt/test_mechanism.py", "tests/privacy/test_svt_enumeration.py"),
    ),
    Breach(
        "all queries taken for monotone",
        "core/svt/params.py",
        "return 1 if monotone else 2",
        "return 1",
        ("tests/privacy/test_svt_enumeration.py", "tests/core/svt/test_params.py"),
    ),
    Breach(
        "a state restored under another key",
        "core/svt/online.py",
        "if state.tag != _tag(params, key, state.stream):",
        "if False:",
        ("tests/core/svt/test_online.py",),
    ),
    Breach(
        "windows left as they are",
        "transforms/shuffle/windows.py",
        'whole = elements | "AllTime" >> beam.WindowInto(GlobalWindows())',
        "whole = elements",
        ("tests/transforms/test_sparse_vector.py", "tests/transforms"),
    ),
    Breach(
        "selection for monotone scores always",
        "core/selection/params.py",
        "return whole if self.monotone else whole / 2",
        "return whole",
        ("tests/privacy/test_selection.py",),
    ),
    Breach(
        "a budget that everything fits",
        "core/ledger/limits.py",
        "        fits(world, budget)\n        for relation",
        "        True\n        for relation",
        ("tests/core/ledger/test_ledger.py",),
    ),
    Breach(
        "the key is kept after commit",
        "core/ledger/ledger.py",
        'status="committed", **closed())',
        'status="committed")',
        ("tests/core/ledger/test_ledger.py", "tests/core/ledger/test_seals.py"),
    ),
    Breach(
        "seals not looked at",
        "core/ledger/chain.py",
        'if links[-1] != row["link"] or sealer.seal(links[-1], row) != row["seal"]:',
        "if False:",
        ("tests/core/ledger/test_ledger.py", "tests/core/ledger/test_seals.py"),
    ),
    Breach(
        "an output replaced",
        "core/publishing.py",
        "_RENAME_NOREPLACE) == 0",
        "0) == 0",
        ("tests/core/test_publishing.py",),
    ),
    Breach(
        "metrics for everyone",
        "pipelines/logs.py",
        "os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)",
        "os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)",
        ("tests/pipelines/test_exit_codes.py",),
    ),
    Breach(
        "a charge given back after the key was out",
        "core/ledger/ledger.py",
        'if row["status"] != "reserved":\n                return False',
        "if False:\n                return False",
        ("tests/core/ledger/test_ledger.py", "tests/core/ledger/test_seals.py"),
    ),
)
