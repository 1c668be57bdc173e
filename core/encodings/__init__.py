"""What an encoding is: counts as noisy cells in a public layout, from which single keys can be estimated.

    LayoutSpec ─ plan ─► Layout ─┬─ project ─► parts of blocks (exact) ─ add ─► cells ─ release ─► EncodedBlock
                                 └─ look_up ◄─ bytes of the blocks that a key needs ─► likelihood for the decoder

Cells are cut into numbered blocks by public numbers alone, never by the runner: noise is drawn for a block at a time,
and a lookup reads whole blocks. Every block is released, also where nothing was counted.

Encodings of the counts: one module each, found by the id that a manifest names.

An id is the encoding's name and its version, `alp-1`. Configs use the name and get its newest version; a sketch is
read by the very id that it names. A module here has one object `ENCODING` of class `Encoding`, and a new encoding is
that module and one line of `ENCODINGS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey

if TYPE_CHECKING:
    from hushgram.decoding import Likelihood, ReleasedNumbers

__all__ = [
    "ENCODINGS", "CellPart", "EncodedBlock", "Encoding", "Layout", "LayoutSpec", "ReadBlock",
    "encoding_named",
    "encoding_of", "monotone",
]  # fmt: skip

#: The id of each encoding and the module that defines it; of one name the newest comes last.
ENCODINGS = {"alp-1": "hushgram.encodings.alp", "buckets-1": "hushgram.encodings.buckets"}


@cache
def encoding_of(id: str) -> Encoding:
    """Return the encoding with this id."""
    if id not in ENCODINGS:
        raise ParameterError(
            f"encoding {str(id)[:40]!r} is not known here ({', '.join(ENCODINGS)} can be read); update hushgram"
        )
    found: Encoding = import_module(ENCODINGS[id]).ENCODING
    return found


def encoding_named(name: str) -> Encoding:
    """Return the newest encoding of this name.

    >>> encoding_named("alp").id
    'alp-1'
    """
    ids = [id for id in ENCODINGS if id.rpartition("-")[0] == name]
    if not ids:
        raise ParameterError(f"encoding {name!r} is not known here")
    return encoding_of(ids[-1])


#: What one group of noise shards adds to a block: a few arrays of u1, u2, u4, u8 or i8, all of one length. Exact and
#: private.
CellPart: TypeAlias = tuple[NDArray[Any], ...]
#: The released bytes of a block.
ReadBlock: TypeAlias = Callable[[int], NDArray[np.uint8]]


@dataclass(frozen=True)
class LayoutSpec:
    """What an encoding is planned for: public numbers alone."""

    #: the loss that it may have
    epsilon: Fraction
    delta: Fraction
    max_contributions: int
    max_per_key: int
    #: of the noise of cells, for encodings that share that of the release
    scale: Fraction | None
    #: from this noisy count on a key is heavy, so that its count stands in the list
    threshold: int
    #: released or stated: keys, records, and the number of keys with at least profile_at[i] records
    keys: int
    records: int
    profile_at: tuple[int, ...]
    profile: tuple[int, ...]
    #: room per key: of all columns together, or in the setting of the paper of each
    bits_per_key: Fraction
    #: "remainder" for what the list passes on, of which there is no more than ``threshold`` per key; "paper"; or empty
    way: str = ""


@dataclass(frozen=True)
class EncodedBlock:
    """A block after noise: its bytes, and its share of the sums that the manifest states. Released."""

    index: int
    content: NDArray[np.uint8]
    sums: NDArray[np.int64]


class Layout(ABC):
    """The public shape of one release under an encoding: frozen, comparable, and plain JSON as text."""

    @property
    @abstractmethod
    def encoding(self) -> str:
        """The id of the encoding."""

    @property
    def noise_scale(self) -> Fraction | None:
        """Of the noise of the release on its cells; None where they have another."""
        return None

    @property
    @abstractmethod
    def hashes(self) -> int:
        """How many hash functions place the keys; each has three seeds."""

    @property
    @abstractmethod
    def blocks(self) -> int:
        """How many blocks there are."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """How many bits all blocks have together, exactly or about."""

    @property
    @abstractmethod
    def sums(self) -> int:
        """How many released sums the manifest states."""

    @abstractmethod
    def describe(self) -> str:
        """Return a description in a few words."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a form that JSON can hold."""

    @abstractmethod
    def check_privacy(self, spec: LayoutSpec) -> None:
        """Raise unless the release is (spec.epsilon, spec.delta)-differentially private."""

    @abstractmethod
    def project(
        self, shards: Iterable[tuple[int, Histogram]], seeds: NDArray[np.uint64], release_key: ReleaseKey
    ) -> Iterator[tuple[int, CellPart]]:
        """Yield (block, part), in order, for each block that noise shards add something to. Exact and private."""

    @abstractmethod
    def empty_block(self, block: int) -> NDArray[Any]:
        """Return the cells of a block to which nothing was added."""

    @abstractmethod
    def add(self, cells: NDArray[Any], part: CellPart) -> None:
        """Add a part to the cells of its block, in place. The order of parts has no effect."""

    @abstractmethod
    def release_block(self, block: int, cells: NDArray[Any], release_key: ReleaseKey) -> EncodedBlock:
        """Add noise to every cell of a block. Released."""

    @abstractmethod
    def block_lengths(self) -> NDArray[np.int64] | None:
        """Return bytes of each released block, or None where they depend on the content."""

    @abstractmethod
    def block_sums(self, block: int, content: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the sums of a released block, from its bytes; raise FormatError if these cannot be right."""

    @abstractmethod
    def check_sums(self, sums: tuple[int, ...]) -> None:
        """Raise FormatError if no release could have these sums."""

    @abstractmethod
    def look_up(
        self, fingerprints: NDArray[np.uint64], seeds: NDArray[np.uint64], read: ReadBlock
    ) -> NDArray[Any]:
        """Return what the release shows at each of the keys: one row per key, for the decoder."""

    @abstractmethod
    def likelihood(self, released: ReleasedNumbers, sums: NDArray[np.int64], read: ReadBlock) -> Likelihood:
        """Return the likelihood of counts given such rows.

        Floating point begins here, after the release.
        """


class Encoding(ABC):
    """A way to encode counts, with no state of its own."""

    #: its name and version, as manifests state it
    id: str

    @property
    def name(self) -> str:
        """Return the name in configs and answers."""
        return self.id.rpartition("-")[0]

    @abstractmethod
    def check(self, spec: LayoutSpec) -> None:
        """Raise where the layout of such a spec could not be released or read, whatever the data."""

    @abstractmethod
    def plan(self, spec: LayoutSpec) -> Layout:
        """Return the layout for a spec."""

    @abstractmethod
    def read_layout(self, text: Mapping[str, Any]) -> Layout:
        """Return the layout that `Layout.to_dict` wrote; raises ParameterError where a number is out of range."""


@lru_cache(maxsize=16)
def monotone(profile: tuple[int, ...], keys: int) -> tuple[Fraction, ...]:
    """Return the nearest non-increasing sequence (pool adjacent violators), cut to [0, keys]."""
    pools: list[tuple[Fraction, int]] = []
    for value in profile:
        mean, weight = Fraction(value), 1
        while pools and pools[-1][0] < mean:
            other, count = pools.pop()
            mean, weight = (mean * weight + other * count) / (weight + count), weight + count
        pools.append((mean, weight))
    return tuple(min(max(mean, Fraction(0)), Fraction(keys)) for mean, weight in pools for _ in range(weight))
