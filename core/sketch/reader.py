"""Reading a sketch: lookups, totals and heavy keys. No data, no Beam, no budget: all of it is post-processing."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.accounting.guarantee import Guarantee
from hushgram.decoding import Decoder, NoiseLaw, Released, noise_law
from hushgram.encodings import encoding_of
from hushgram.errors import FormatError, ParameterError
from hushgram.exact.keys import Encoded, encode, hash_bytes
from hushgram.sketch.manifest import BLOCKS_PER_FILE, HEAVY_NAME, MANIFEST_NAME, FileEntry, Manifest
from hushgram.sparse_histogram.kinds import TEXT
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.sizing import PROFILE_GRID

__all__ = ["Sketch", "Total"]

Floats = NDArray[np.float64]
_CHUNK = 1 << 24


class Total:
    """The sum over a set of keys, with its interval."""

    __slots__ = ("estimate", "high", "keys", "level", "low")

    def __init__(self, estimate: float, low: float, high: float, level: float, keys: int) -> None:
        self.estimate, self.low, self.high, self.level, self.keys = estimate, low, high, level, keys

    def __iter__(self) -> Any:
        return iter((self.estimate, self.low, self.high))

    def __repr__(self) -> str:
        return f"Total({self.estimate:.1f}, {self.low:.1f} to {self.high:.1f} at {self.level:g}, {self.keys} keys)"


class Sketch:
    """A released sketch on disk. `Sketch.open` checks its manifest and sizes; `verify` every byte.

    Blocks of the encoding stay on disk and are memory-mapped; the threshold part is read when first needed.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | Path) -> Sketch:
        """Open the sketch directory at ``path``."""
        root = Path(path)
        if not root.is_dir():
            raise FormatError(f"{root}: no such sketch directory")
        try:
            content = (root / MANIFEST_NAME).read_bytes()
        except FileNotFoundError:
            raise FormatError(f"{root}: there is no {MANIFEST_NAME}; this is not a finished sketch") from None
        except OSError as error:
            raise FormatError(f"{root}: {MANIFEST_NAME} cannot be read: {error.strerror}") from None
        sketch = cls(root, Manifest.from_bytes(content, str(root / MANIFEST_NAME)))
        for entry in sketch.manifest.files:
            sketch._check_size(entry)
        return sketch

    @property
    def plan(self) -> Plan:
        """Every public number of the release."""
        return self.manifest.plan

    @property
    def guarantee(self) -> Guarantee:
        """ε, δ and their parts."""
        return self.plan.guarantee()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(entry.size for entry in self.manifest.files) + (self.path / MANIFEST_NAME).stat().st_size

    def verify(self) -> list[FileEntry]:
        """Check the digest of every file, the released sums and the order of the heavy keys."""
        for entry in self.manifest.files:
            state = hashlib.sha256()
            with open(self.path / entry.name, "rb") as file:
                while chunk := file.read(_CHUNK):
                    state.update(chunk)
            if state.hexdigest() != entry.sha256:
                raise FormatError(
                    f"{self.path / entry.name}: content does not match its SHA-256; copy the sketch again"
                )
        sums = np.zeros(len(self.manifest.sums), np.int64)
        for block in range(0 if self.plan.space is None else self.plan.space.blocks):
            assert self.plan.space is not None
            sums += self.plan.space.check_block(block, self._block(block))
        if tuple(sums.tolist()) != self.manifest.sums:
            raise FormatError(f"{self.path}: the blocks do not have the sums that the manifest states")
        prints = self._heavy[0]
        if len(prints) > 1 and self.plan.kind is not TEXT and not bool(np.all(prints[1:] > prints[:-1])):
            raise FormatError(f"{self.path / HEAVY_NAME}: fingerprints are not sorted")
        return list(self.manifest.files)

    def heavy(self) -> pa.Table:
        """The threshold part: fingerprint, value, and key text where δ > 0 or the keys are public."""
        prints, values, texts = self._heavy
        columns = {"fingerprint": pa.array(prints), "value": pa.array(values)}
        if texts is not None:
            columns["key"] = _as_text(texts)
        return pa.table(columns)

    def estimate(
        self,
        keys: Any,
        estimator: str = "posterior",
        interval: str | None = "confidence",
        level: float = 0.95,
        present: float = 1.0,
    ) -> pa.Table:
        """key, estimate, low, high and source ("threshold", or the word of the encoding) of each key.

        ``present``: the probability that a looked-up key is in the data at all. Repeated keys are decoded once.
        """
        encoded = encode(keys)
        if self.plan.space is None:
            columns = self._estimate_public(encoded, level)
        else:
            values, heavy, found = self._look_up(encoded)
            estimate, low, high = self._decoder.estimate(
                found, values, heavy, estimator=estimator, interval=interval, level=level, present=present
            )
            word = encoding_of(self.plan.space.encoding).word
            columns = [estimate, low, high, np.where(heavy, "threshold", word)]
        names = ["key", "estimate", "low", "high", "source"]
        rows = [
            pa.array(column)[:0] if not len(column) else pa.array(column[encoded.codes]) for column in columns
        ]
        text = _as_text(encoded.values).take(pa.array(encoded.codes))
        return pa.table([text, *rows[:3], rows[3].cast(pa.string())], names=names)

    def total(
        self, keys: Any, level: float = 0.95, present: float = 1.0, estimator: str = "posterior"
    ) -> Total:
        """The sum over a set of keys (each counted once), with an interval.

        ``posterior`` is the sharpest for sets that were not chosen by their counts (pages of one site, a random
        sample); ``unbiased`` holds for any fixed set, also the rarest keys, at a wider interval.
        """
        encoded = encode(keys)
        count = len(encoded.values)
        if self.plan.space is None:
            estimate = self._estimate_public(encoded, level)[0]
            if np.isnan(estimate).any():
                raise ParameterError(
                    "total: some keys are not in the public list of this release; leave them out"
                )
            half = self._noise.interval(level, max(count, 1))
            return Total(
                float(estimate.sum()),
                float(estimate.sum()) - half,
                float(estimate.sum()) + half,
                level,
                count,
            )
        values, heavy, found = self._look_up(encoded)
        middle, below, above = self._decoder.total(
            found, values, heavy, estimator=estimator, level=level, present=present
        )
        return Total(float(middle), float(below), float(above), level, count)

    def distribution(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counts, rising, and the estimated number of keys with each: fitted to all that the release says."""
        if self.plan.space is None:
            values = np.sort(self._heavy[1]).astype(np.float64)
            return values, np.ones(len(values))
        prior = self._decoder.prior
        top = int(prior.support.high[-1])
        beyond = np.sort(self._heavy[1][self._heavy[1] > top]).astype(np.float64)
        body = max(float(self.plan.keys) - len(beyond), 0.0)
        counts = np.concatenate([prior.support.at, beyond])
        return counts, np.concatenate([prior.mass * body, np.ones(len(beyond))])

    # --- inside -------------------------------------------------------------------------------------------------

    def _look_up(self, encoded: Encoded) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[Any]]:
        """For each distinct key: its value if heavy, whether it is, and what the encoding shows of it."""
        assert self.plan.space is not None
        prints = self.plan.kind.place(hash_bytes(encoded.values), self.plan.domain_bits)
        values, heavy = self._heavy_values(prints, encoded.values)
        return values, heavy, self.plan.space.look_up(prints, self.manifest.seeds, self._block)

    def _heavy_values(
        self, prints: NDArray[np.uint64], texts: pa.LargeBinaryArray
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The noisy count of each key where it is heavy, and whether it is."""
        held, values, names = self._heavy
        if not len(held):
            return np.zeros(len(prints), np.int64), np.zeros(len(prints), np.bool_)
        at = np.minimum(np.searchsorted(held, prints), len(held) - 1)
        heavy = held[at] == prints
        if names is not None:
            at, heavy = _match_texts(at, heavy, held, names, texts)
        return np.where(heavy, values[at], 0), heavy

    def _estimate_public(self, encoded: Encoded, level: float) -> list[NDArray[Any]]:
        prints = hash_bytes(encoded.values)
        values, listed = self._heavy_values(prints, encoded.values)
        estimate = np.where(listed, values.astype(np.float64), np.nan)
        half = self._noise.interval(level)
        return [estimate, estimate - half, estimate + half, np.where(listed, "laplace", "not listed")]

    @cached_property
    def _noise(self) -> NoiseLaw:
        return noise_law(self.plan.noise.id, float(self.plan.scale))

    @cached_property
    def _decoder(self) -> Decoder:
        plan, sizes = self.plan, self.plan.sizes
        assert plan.space is not None
        released = Released(
            bound=plan.threshold,
            noise=self._noise,
            listed=self._heavy[1],
            cells=2.0**plan.domain_bits if plan.domain_bits is not None else None,
            records=float(sizes.records),
            profile_at=np.array(PROFILE_GRID if sizes.profile else (), np.int64),
            profile=np.array(sizes.profile, np.float64),
            profile_noise=float(sizes.scale),
            keys=float(plan.keys),
        )
        sums = np.array(self.manifest.sums, np.int64)
        return Decoder(released, plan.space.evidence(released, sums, self._block))

    @cached_property
    def _heavy(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], pa.LargeBinaryArray | None]:
        import pyarrow.parquet as pq

        where = self.path / HEAVY_NAME
        try:
            with pq.ParquetFile(where) as file:
                if file.metadata.num_rows != self.manifest.heavy_rows:
                    raise FormatError(
                        f"{where}: has {file.metadata.num_rows} rows, the manifest says {self.manifest.heavy_rows}"
                    )
                table = file.read()
        except (pa.ArrowException, OSError) as error:
            raise FormatError(
                f"{where}: cannot be read as Parquet ({str(error).splitlines()[0][:80]}); copy the sketch again"
            ) from None
        wanted = {"fingerprint": pa.uint64(), "value": pa.int64()}
        if self.plan.kind.texts:
            wanted["key"] = pa.binary()
        for name, kind in wanted.items():
            if name not in table.column_names or (table.schema.field(name).type != kind):
                raise FormatError(f"{where}: column {name!r} must be there as {kind}")
        prints, values = (table[name].to_numpy() for name in ("fingerprint", "value"))
        texts = table["key"].combine_chunks().cast(pa.large_binary()) if "key" in wanted else None
        return prints, values, texts

    @cached_property
    def _files(self) -> list[NDArray[np.uint8]]:
        """The files of blocks, memory-mapped."""
        names = [entry.name for entry in self.manifest.files if entry.name != HEAVY_NAME]
        return [np.memmap(self.path / name, dtype=np.uint8, mode="r") for name in names]

    @cached_property
    def _block_starts(self) -> NDArray[np.int64]:
        """Where each block begins, counted through all files, and where the last one ends."""
        space = self.plan.space
        lengths = [] if space is None else [space.block_length(block) or 0 for block in range(space.blocks)]
        return np.cumsum([0, *lengths])

    def _block(self, index: int) -> NDArray[np.uint8]:
        """The released bytes of a block."""
        file, starts = index // BLOCKS_PER_FILE, self._block_starts
        before = starts[file * BLOCKS_PER_FILE]
        return self._files[file][starts[index] - before : starts[index + 1] - before]

    def _check_size(self, entry: FileEntry) -> None:
        where = self.path / entry.name
        try:
            size = where.stat().st_size
        except OSError:
            raise FormatError(f"{where}: the file is missing; copy the sketch again") from None
        if size != entry.size:
            raise FormatError(
                f"{where}: has {size} bytes, the manifest says {entry.size}; copy the sketch again"
            )

    def __repr__(self) -> str:
        return f"Sketch({str(self.path)!r}, {self.manifest.heavy_rows} heavy keys, {self.plan.bits // 8} bytes encoded)"


def _match_texts(
    at: NDArray[np.intp],
    listed: NDArray[np.bool_],
    heavy: NDArray[np.uint64],
    names: pa.LargeBinaryArray,
    texts: pa.LargeBinaryArray,
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """At δ > 0 a key is listed only if its very text is: step over other texts with the same fingerprint."""
    at, listed = at.copy(), listed.copy()
    for i in np.flatnonzero(listed):
        place, text = int(at[i]), texts[int(i)].as_py()
        while place < len(heavy) and heavy[place] == heavy[at[i]] and names[place].as_py() != text:
            place += 1
        listed[i] = place < len(heavy) and heavy[place] == heavy[at[i]]
        at[i] = min(place, len(heavy) - 1)
    return at, listed


def _as_text(values: pa.LargeBinaryArray) -> pa.Array:
    """Keys as text where all are UTF-8, else as bytes."""
    try:
        text = values.cast(pa.large_string())
        text.validate(full=True)
        return text
    except pa.ArrowInvalid:
        return values
