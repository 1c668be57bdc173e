"""Lookups in a sketch: the value of a heavy key, and what the encoding shows of any key. From FORMAT.md alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.second_reader.parquet import read_columns

__all__ = ["SecondReader", "murmur"]

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
        assert body["version"] == 5
        self.files = {entry["name"]: (path / entry["name"]).read_bytes() for entry in body["files"]}
        for entry in body["files"]:
            assert len(self.files[entry["name"]]) == entry["size"]
            assert hashlib.sha256(self.files[entry["name"]]).hexdigest() == entry["sha256"]
        plan = self.plan = body["plan"]
        number = [body["heavy"]["rows"]]
        lists = [name for name in ("heavy.bin", "heavy.parquet") if name in self.files]
        if "files" in body["heavy"]:
            number = body["heavy"]["files"]
            lists = [
                f"heavy-{i:05d}.{'bin' if plan['kind'] == 'pure' else 'parquet'}" for i in range(len(number))
            ]
        self.cells: dict[int, int] = {}
        if plan["kind"] == "text" and "top" in plan:
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
        if "top" in self.plan and self.plan["kind"] == "pure":
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
        return heavy, heavy["fingerprint"], bits if self.plan["kind"] == "pure" else 64

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
        number = murmur(key)
        value = None
        if "top" in self.plan and self.plan["kind"] == "pure":
            bits = self.plan["top"]["domain_bits"]
            value = self.heavy.get((bits, number >> (64 - bits)))
        if self.plan["kind"] == "pure":
            number >>= 64 - self.plan["domain_bits"]
        if value is None:
            value = self.heavy.get(number if self.plan["kind"] == "pure" else key)
        if value is None and self.cells:
            value = self.cells.get(number >> (64 - self.plan["domain_bits"]))
        if self.encoding == "alp-1":
            return value, self._bits(number)
        return value, self._bucket(number) if self.encoding == "buckets-1" else []

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
