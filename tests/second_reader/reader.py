"""Lookups in a sketch: the value of a listed key, what the encoding shows of any key, and the estimates that FORMAT.md
defines. From FORMAT.md alone."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.second_reader.parquet import read_columns

__all__ = ["Noise", "SecondReader", "murmur", "offset", "passed_on"]

_MASK = (1 << 64) - 1
_BLOCK_BITS = 1 << 20
_BLOCK_BUCKETS = 1 << 14
_BLOCKS_A_FILE = 1024


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & _MASK


def _mix(x: int) -> int:
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & _MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return x ^ x >> 33


def murmur(key: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = 0
    whole = len(key) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = (int.from_bytes(key[at + i : at + i + 8], "little") for i in (0, 8))
        h1 ^= _rotate(k1 * c1 & _MASK, 31) * c2 & _MASK
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotate(k2 * c2 & _MASK, 33) * c1 & _MASK
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    k1, k2 = (int.from_bytes(key[whole:][i : i + 8], "little") for i in (0, 8))
    h2 ^= _rotate(k2 * c2 & _MASK, 33) * c1 & _MASK
    h1 ^= _rotate(k1 * c1 & _MASK, 31) * c2 & _MASK
    h1, h2 = h1 ^ len(key), h2 ^ len(key)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _mix(h1) + _mix(h2) & _MASK


class SecondReader:
    """A sketch, every byte of it checked when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        body = json.loads((path / "manifest.json").read_bytes())
        stated = body.pop("checksum")
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == stated
        assert body["format"] == "hushgram-sketch"
        assert body["version"] == 6
        self.files = {entry["name"]: (path / entry["name"]).read_bytes() for entry in body["files"]}
        for entry in body["files"]:
            assert len(self.files[entry["name"]]) == entry["size"]
            assert hashlib.sha256(self.files[entry["name"]]).hexdigest() == entry["sha256"]
        self.manifest = body
        plan = self.plan = body["plan"]
        self.selection, self.stated = plan["params"]["selection"], plan["params"]["stated"]
        #: whether lists pass on what they do not show
        self.passes = self.selection in ("fingerprints", "threshold") and "preset" not in self.stated
        number = [body["heavy"]["rows"]]
        lists = [name for name in ("heavy.bin", "heavy.parquet") if name in self.files]
        if "files" in body["heavy"]:
            number = body["heavy"]["files"]
            lists = [
                f"heavy-{i:05d}.{'bin' if self.selection == 'fingerprints' else 'parquet'}"
                for i in range(len(number))
            ]
        self.cells: dict[int, int] = {}
        if self.selection == "threshold" and "top" in plan:
            lists = [name for name in self.files if name.endswith(".parquet")]
            assert len(body["heavy"]["cells"]) == len(lists)
            for i, rows in enumerate(body["heavy"]["cells"]):
                name = lists[i].replace(".parquet", ".bin")
                cells, end = _packed(self.files[name], 0, rows)
                assert end == len(self.files[name])
                assert all(f * len(lists) >> plan["domain_bits"] == i for f in cells["fingerprint"])
                assert all(plan["threshold"] <= v < plan["top"]["threshold"] for v in cells["value"])
                self.cells |= dict(zip(cells["fingerprint"], cells["value"], strict=True))
        assert [entry["name"] for entry in body["files"]][: len(number)] == lists
        assert sum(number) == body["heavy"]["rows"]
        self.heavy: dict[Any, int] = {}
        for i, name in enumerate(lists):
            heavy, codes, width = self._list(name, number[i])
            assert all(code * len(lists) >> width == i for code in codes)
            keys = heavy.get("key", [None] * number[i])
            each = zip(heavy["fingerprint"], keys, heavy["value"], strict=True)
            self.heavy |= {(f if k is None else k): v for f, k, v in each}
        assert len(self.heavy) == sum(number)
        self.encoding, self.layout = plan["encoding"], plan["layout"]
        self._blocks = self._indexed_blocks() if self.encoding else []
        self.sums = body["sums"]
        self.seeds = [[int(seed, 16) for seed in three] for three in body["seeds"]]

    def _list(self, name: str, rows: int) -> tuple[dict[str, Any], list[int], int]:
        """The columns of a file of listed keys, the numbers that identify these, and the bits of such a number."""
        data, bits = self.files[name], self.plan["domain_bits"]
        if "top" in self.plan and self.selection == "fingerprints":
            heavy = self._two_lists(data, rows)
            whole = self.plan["top"]["domain_bits"]
            shown = heavy["fingerprint"]
            codes = [2 * f[1] + 1 if isinstance(f, tuple) else f << (whole - bits + 1) for f in shown]
            return heavy, codes, whole + 1
        if name.endswith(".bin"):
            heavy, end = _packed(data, 0, rows)
            assert end == len(data)
        else:
            heavy = read_columns(data)
            heavy["value"] = [v - (1 << 64) if v >> 63 else v for v in heavy["value"]]
        return heavy, heavy["fingerprint"], bits if self.selection == "fingerprints" else 64

    def _two_lists(self, data: bytes, rows: int) -> dict[str, Any]:
        """Cells as numbers, sub-cells of the top list as pairs of its bits and a number."""
        top, bits = self.plan["top"], self.plan["domain_bits"]
        number = int.from_bytes(data[1:9], "little")
        cells, at = _packed(data, 9, rows - number)
        above, end = _packed(data, at, number)
        assert end == len(data)
        less = top["domain_bits"] - bits + 1
        codes = [cell << data[0] for cell in cells["fingerprint"]]
        assert all(code % (1 << less) == 0 for code in codes)
        assert all(v < top["threshold"] for v in cells["value"])
        assert all(v >= top["threshold"] for v in above["value"])
        pairs = [(top["domain_bits"], cell) for cell in above["fingerprint"]]
        return {
            "fingerprint": [code >> less for code in codes] + pairs,
            "value": cells["value"] + above["value"],
        }

    def _content(self) -> bytes:
        return b"".join(data for name, data in self.files.items() if name.startswith("blocks-"))

    def _indexed_blocks(self) -> list[bytes]:
        index, content, at, out = self.files["blocks.index"], self._content(), 0, []
        for start in range(0, len(index), 40):
            length = int.from_bytes(index[start : start + 8], "little")
            out.append(content[at : at + length])
            assert hashlib.sha256(out[-1]).digest() == index[start + 8 : start + 40]
            at += length
        assert at == len(content)
        return out

    def look_up(self, key: bytes) -> tuple[int | None, list[int]]:
        """(noisy count if heavy, bits of the columns or [bucket, level])."""
        number, prints, bits = murmur(key), self.selection == "fingerprints", self.plan["domain_bits"]
        cell = None if bits is None else number >> (64 - bits)
        value = None
        if "top" in self.plan and prints:
            of_top = self.plan["top"]["domain_bits"]
            value = self.heavy.get((of_top, number >> (64 - of_top)))
        if value is None:
            value = self.heavy.get(cell if prints else key)
        if value is None and cell is not None:
            value = self.cells.get(cell)
        hashed = number if cell is None else cell
        if self.encoding == "alp-1":
            return value, self._bits(hashed)
        return value, self._bucket(hashed) if self.encoding == "buckets-1" else []

    def answer(self, key: bytes) -> tuple[float, float, str] | None:
        """(argmax, unbiased, source), as golden sketches record them; None where FORMAT.md defines no estimate."""
        value, seen = self.look_up(key)
        if self.selection in ("weights", "public") and value is not None:
            middle = value - self._noise.mean
            return max(middle, 0.0), middle, "selected"
        if self.encoding is None:
            return 0.0, 0.0, "not listed"
        if not self.passes:
            return None
        width = float(Fraction(self.layout["width"]))
        most = seen[0] * width if value is None else float(value)
        return most, self.unbiased(value, seen), "alp" if value is None else "threshold"

    def unbiased(self, value: int | None, bits: list[int]) -> float:
        """The unbiased estimate of a key, from its value and its bit; where the encoding counts what the list passes
        on."""
        top, plan = self.plan.get("top"), self.plan
        shift = (
            0.0 if top is None else offset(top["threshold"], self._noise, texts=self.selection == "threshold")
        )
        cells = self._noise if top is None else Noise.laplace(float(Fraction(plan["scale"])))
        if value is not None:
            if top is None or value >= top["threshold"]:
                return value - self._noise.mean
            cut = cells.q / (1.0 - cells.q) if value == top["threshold"] - 1 else 0.0
            return value + shift + cut
        (bit,), (ones,), (size,) = bits, self.sums, self.layout["column_sizes"]
        width, flip = (
            float(Fraction(self.layout["width"])),
            1.0 / (float(Fraction(self.layout["alpha"])) + 2.0),
        )
        texts = self.selection == "threshold" and top is None
        share = ones / size
        encoded = width * (bit - share) / max(1.0 - flip - share, 1e-3)
        return encoded + offset(plan["threshold"], cells, texts=texts) + shift

    @cached_property
    def _noise(self) -> Noise:
        """That of `plan.noise`: on the top list where there is one of texts."""
        scale = float(Fraction(self.plan["scale"]))
        if self.plan["noise"] == "truncated_geometric":
            return Noise.truncated_geometric(scale, float(Fraction(self.stated["delta"])))
        return Noise.laplace(scale) if self.plan["noise"] == "laplace" else Noise(0.0, 0.0, None)

    def _position(self, number: int, function: int, size: int) -> int:
        a1, a2, c = self.seeds[function]
        number = _mix(number)
        h = ((a1 + (number & 0xFFFFFFFF)) * (a2 + (number >> 32)) + c) & _MASK
        return (h >> 32) * size >> 32

    def _bits(self, number: int) -> list[int]:
        out, first = [], 0
        for column, size in enumerate(self.layout["column_sizes"]):
            place = self._position(number, column, size)
            block = self._blocks[first + place // _BLOCK_BITS]
            at = place % _BLOCK_BITS
            out.append(block[at >> 3] >> (at & 7) & 1)
            first += -(-size // _BLOCK_BITS)
        return out

    def _bucket(self, number: int) -> list[int]:
        size = self.layout["buckets"]
        place = self._position(number, 0, size)
        block = place // _BLOCK_BUCKETS
        count = min(_BLOCK_BUCKETS, size - block * _BLOCK_BUCKETS)
        return [place, _numbers(self._blocks[block], count)[place % _BLOCK_BUCKETS]]

    def levels(self) -> list[int]:
        """All buckets."""
        left, out = self.layout["buckets"], []
        for block in self._blocks:
            out += _numbers(block, min(_BLOCK_BUCKETS, left))
            left -= _BLOCK_BUCKETS
        return out


def _packed(data: bytes, at: int, rows: int) -> tuple[dict[str, Any], int]:
    """Fingerprints and values of a list in heavy.bin, and the byte after it."""
    least, at = int.from_bytes(data[at : at + 8], "little", signed=True), at + 8
    out: dict[str, Any] = {"fingerprint": [], "value": []}
    last = -1
    for start in range(0, rows, 1 << 16):
        count = min(1 << 16, rows - start)
        middle = at + 8 + int.from_bytes(data[at : at + 4], "little")
        end = middle + int.from_bytes(data[at + 4 : at + 8], "little")
        for gap in _unsigned(data[at + 8 : middle], count):
            last += gap + 1
            out["fingerprint"].append(last)
        out["value"] += [least + above for above in _unsigned(data[middle:end], count)]
        at = end
    return out, at


def _unsigned(data: bytes, count: int) -> list[int]:
    return _runs(data[5:], count, data[0], int.from_bytes(data[1:5], "little"))


def _numbers(data: bytes, count: int) -> list[int]:
    centre = int.from_bytes(data[1:9], "little", signed=True)
    us = _runs(data[13:], count, data[0], int.from_bytes(data[9:13], "little"))
    return [centre - (u + 1) // 2 if u & 1 else centre + u // 2 for u in us]


def _runs(data: bytes, count: int, k: int, run: int) -> list[int]:
    classes, at = [], 0
    bits = int.from_bytes(data[:run], "little")
    for _ in range(count):
        start = at
        while not bits >> at & 1:
            at += 1
        classes.append(at - start)
        at += 1
    fields = int.from_bytes(data[run : run + (count * k + 7) // 8], "little")
    extra, at = int.from_bytes(data[run + (count * k + 7) // 8 :], "little"), 0
    out = []
    for i, c in enumerate(classes):
        q = c
        if c >= 6:
            e = c - 6
            q = (1 << e) + (extra >> at & ((1 << e) - 1)) + 5
            at += e
        out.append(q << k | (fields >> (i * k) & ((1 << k) - 1)))
    return out


# --- what passes on -----------------------------------------------------------------------------------------------

_GRID = 1 << 20


class Noise:
    """Noise with P[Z ≥ t] = T(t) for t ≥ 1 and E[Z − E Z; Z ≥ t] = R(t); both are None where no list passes on."""

    def __init__(self, scale: float, mean: float, tails: tuple[Callable[[int], float], ...] | None) -> None:
        self.scale, self.mean, self.tails = scale, mean, tails
        self.q = math.exp(-1.0 / scale) if scale else 0.0

    @classmethod
    def laplace(cls, scale: float) -> Noise:
        q = math.exp(-1.0 / scale)

        def tail(t: int) -> float:
            return q**t / (1.0 + q)

        return cls(scale, 0.0, (tail, lambda t: tail(t) * (t + q / (1.0 - q))))

    @classmethod
    def truncated_geometric(cls, scale: float, delta: float) -> Noise:
        chances, grows, falls = [0.0], math.exp(1.0 / scale), math.exp(-1.0 / scale)
        while chances[-1] < 1.0:
            last = chances[-1]
            chances.append(min(grows * last + delta, 1.0 - falls * (1.0 - last - delta), 1.0))
        users = next(n for n, chance in enumerate(chances) if chance >= 0.5)
        mass = {users - n: chances[n] - chances[n - 1] for n in range(1, len(chances))}
        mean = sum(z * chance for z, chance in mass.items())

        def beyond(t: int) -> float:
            return sum((z - mean) * chance for z, chance in mass.items() if z >= t)

        return cls(scale, mean, (lambda t: chances[max(users - t, 0)], beyond))


def _step(noise: Noise, at: int) -> float:
    """D(t), rounded."""
    assert noise.tails is not None
    tail, beyond = noise.tails
    one, two = tail(at), tail(at + 1)
    needed = (one - two) / ((1.0 - two) * (1.0 - noise.q))
    return _up(max(needed, beyond(at) / (1.0 - one) - beyond(at + 1) / (1.0 - two)))


def _up(number: float) -> float:
    return min(max(math.ceil(number * _GRID), 1), _GRID) / _GRID


def _lowered(noise: Noise, first: int) -> float:
    """L(t)."""
    grain, total, at = max(math.ceil(noise.scale / (1 << 14)), 1), 0.0, first
    while (step := _step(noise, 1 + grain * ((at - 1) // grain))) > 1 / _GRID:
        total, at = total + step - 1 / _GRID, at + 1
    return total


def _base(threshold: int, noise: Noise, texts: bool) -> float:
    """B."""
    if not texts:
        return _lowered(noise, threshold)
    assert noise.tails is not None
    tail, beyond = (of(threshold - 1) for of in noise.tails)
    first = _up(max(tail / (1.0 - noise.q), beyond / (1.0 - tail)))
    return _lowered(noise, threshold - 1) + 1 / _GRID - first


def offset(threshold: int, noise: Noise, *, texts: bool) -> float:
    """What an unbiased estimate of g(x) lacks to be one of x."""
    return -_base(threshold, noise, texts)


def passed_on(count: int, threshold: int, noise: Noise, *, texts: bool) -> float:
    """g of a count."""
    held = min(count, threshold - 1)
    if held <= 0:
        return 0.0
    return held * (1.0 - 1 / _GRID) - _lowered(noise, threshold - held) + _base(threshold, noise, texts)
