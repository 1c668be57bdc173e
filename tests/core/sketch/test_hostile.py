"""Sketches that someone made to hang, exhaust or fool a reader: refused in one line, in bounded time and memory."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushgram as hg
from hushgram.encodings import integer_code
from hushgram.errors import FormatError
from hushgram.key_selection.threshold import Heavy
from hushgram.numbers import show
from hushgram.sketch import heavy as heavy_file
from hushgram.sketch import manifest as manifests
from tests.core.sketch.mutants import Bench, answers
from tests.golden import make as golden

HOME = golden.HOME


def copy_of(tmp_path: Path, name: str = "pure") -> Path:
    target = tmp_path / f"{name}.sketch"
    shutil.copytree(HOME / f"{name}.sketch", target)
    return target


def state(sketch: Path, content: bytes, rows: int) -> None:
    """Another heavy.parquet, with every checksum made right."""
    (sketch / "heavy.parquet").write_bytes(content)
    body = json.loads((sketch / "manifest.json").read_text())
    body.pop("checksum")
    entry = manifests.FileEntry.of("heavy.parquet", content)
    body["files"][0].update(size=entry.size, sha256=entry.sha256)
    body["heavy"]["rows"] = rows
    body["checksum"] = manifests._checksum(body)
    (sketch / "manifest.json").write_text(json.dumps(body))


def refused(sketch: Path, words: str) -> None:
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(FormatError, match=words) as caught:
        hg.Sketch.open(sketch).estimate(["a"])
    assert "\n" not in str(caught.value)
    assert pa.default_memory_pool().bytes_allocated() - before < 200 << 20


@pytest.mark.long
def test_mutants_are_refused_or_answer(tmp_path: Path) -> None:
    """HUSHGRAM_SKETCH_MUTANTS says how many; `make sketch-mutants` makes 20,000."""
    bench = Bench(tmp_path, seed=7)
    assert list(bench.run(int(os.environ.get("HUSHGRAM_SKETCH_MUTANTS", "600")))) == []
    assert set(bench.seen) == {"answered", "refused"}
    assert min(bench.seen.values()) > 60  # 93 are answered


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"delta": "1e-6"},
        {"delta": "1e-6", "max_contributions": 2, "selection": hg.Threshold()},
        {"epsilon": "0.002", "delta": "1e-6", "selection": hg.Weights()},
    ],
    ids=["fingerprints", "one key", "threshold", "weights"],
)
@pytest.mark.long
def test_noise_of_any_scale_is_decoded_in_time(change: dict[str, Any], tmp_path: Path) -> None:
    """A tiny ε makes tables of values no larger: two kilobytes once took three minutes and gigabytes."""
    params = hg.ReleaseParams(
        **{"epsilon": "0.00002", "sizes": golden.SIZES, "max_contributions": 1, **change}
    )
    hg.release(golden.USERS, golden.KEYS, params, tmp_path / "s", release_key=golden.KEY)
    begun = time.thread_time()
    tracemalloc.start()
    answers(tmp_path / "s")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 300 << 20
    assert time.thread_time() - begun < 3  # under tracemalloc and in company; about 0.3 alone


@pytest.mark.parametrize(
    ("step", "level"), [(1, (1 << 60) - 1), (1, 1 << 40), (3, -(1 << 45)), (1 << 33, 1 << 40)]
)
def test_levels_of_any_size_are_decoded_or_refused(step: int, level: int, tmp_path: Path) -> None:
    """No table of all values between the least and the most."""
    sketch = tmp_path / "s"
    params = hg.ReleaseParams(
        epsilon="1", delta="1e-3", max_contributions=2, sizes=golden.SIZES, selection=hg.Weights(2, 1)
    )
    hg.release(golden.USERS, golden.KEYS, params, sketch, release_key=golden.KEY)
    body = json.loads((sketch / "manifest.json").read_text())
    body.pop("checksum")
    levels = np.zeros(body["plan"]["layout"]["buckets"], np.int64)
    levels[1] = level
    content = integer_code.encode(levels).tobytes()
    index = len(content).to_bytes(8, "little") + hashlib.sha256(content).digest()
    body["plan"]["layout"]["step"], body["sums"] = step | 1, [level]
    for entry in body["files"]:
        for name, bytes_ in (("blocks-00000.bin", content), ("blocks.index", index)):
            if entry["name"] == name:
                (sketch / name).write_bytes(bytes_)
                entry.update(size=len(bytes_), sha256=hashlib.sha256(bytes_).hexdigest())
    body["checksum"] = manifests._checksum(body)
    (sketch / "manifest.json").write_text(json.dumps(body))
    begun = time.thread_time()
    if step * abs(level) > integer_code.LARGEST:
        refused(sketch, "too large")
    else:
        answers(sketch)
    assert time.thread_time() - begun < 1


def changed(tmp_path: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """A golden sketch with another plan, and every checksum made right."""
    sketch = copy_of(tmp_path, name)
    body = json.loads((sketch / "manifest.json").read_text())
    body.pop("checksum")
    change(body["plan"])
    body["checksum"] = manifests._checksum(body)
    (sketch / "manifest.json").write_text(json.dumps(body))
    return sketch


@pytest.mark.parametrize("most", [1 << 10, (1 << 15) - 1, 1 << 20])
@pytest.mark.parametrize("name", ["two-lists", "names-laplace"])
def test_two_lists_of_any_scale_are_refused_in_time(name: str, most: int, tmp_path: Path) -> None:
    """What a list passes on is a table of about 2^19 steps at most: a manifest of a few kilobytes once asked for
    minutes."""

    def scaled(plan: dict[str, Any]) -> None:
        stated = plan["params"]["stated"]
        plan["scale"] = str(Fraction(plan["scale"]) * most / stated["max_contributions"])
        stated["max_contributions"] = most

    sketch = changed(tmp_path, name, scaled)
    begun = time.thread_time()
    with pytest.raises(FormatError):
        answers(sketch)
    assert time.thread_time() - begun < 4  # in company; at most 1.3 alone


CHAINS = ["pure", "text", "text-chain", "two-lists", "names", "names-laplace"]


@pytest.mark.parametrize("name", ["pure", "text", "text-chain", "paper", "paper-text"])
def test_parameters_say_whether_lists_pass_on(name: str, tmp_path: Path) -> None:
    """A preset that is not that of the release makes other numbers of it, which its plan contradicts."""

    def preset(plan: dict[str, Any]) -> None:
        stated = plan["params"]["stated"]
        stated |= {"preset": "paper"} if stated.pop("preset", None) is None else {}

    with pytest.raises(FormatError):
        answers(changed(tmp_path, name, preset))


@pytest.mark.parametrize("name", CHAINS)
def test_a_cap_that_is_not_what_passes_on_is_refused(name: str, tmp_path: Path) -> None:
    right = hg.Sketch.open(HOME / f"{name}.sketch").plan.remainder.most
    for number, cap in enumerate({1, right - 1, right + 1, 2 * right, 1 << 40, 1 << 62} - {0, right}):
        (tmp_path / str(number)).mkdir()

        def capped(plan: dict[str, Any], cap: int = cap) -> None:
            assert plan["layout"]["cap"] == right
            plan["layout"]["cap"] = cap

        refused(
            changed(tmp_path / str(number), name, capped), "cap of encoding alp-1 is not that of the list"
        )


@pytest.mark.parametrize("name", CHAINS)
def test_a_layout_that_costs_more_than_the_list_is_refused(name: str, tmp_path: Path) -> None:
    """A narrower level or a larger alpha costs more; the other way round a forger's numbers are answered with."""
    plan = hg.Sketch.open(HOME / f"{name}.sketch").manifest_json["plan"]
    alpha, width = (Fraction(plan["layout"][each]) for each in ("alpha", "width"))
    finer = alpha + Fraction(1, 1 << 18)
    worse = [{"alpha": show(finer)}, {"alpha": show(2 * alpha)}]
    worse += [{"width": show(width * 99 / 100)}, {"width": "0.5"}, {"width": "0"}, {"alpha": "0"}]
    fair = [{"alpha": show(alpha / 2)}, {"width": show(width + 1)}, {"width": show(width * 1000)}]
    for number, layout in enumerate([*worse, *fair]):
        (tmp_path / str(number)).mkdir()
        sketch = changed(tmp_path / str(number), name, lambda plan, new=layout: plan["layout"].update(new))
        if layout in worse:
            with pytest.raises(FormatError, match=r"width .* is too small|(width|alpha) must be"):
                answers(sketch)
        else:
            assert "nan" not in answers(sketch).replace("None", "")


@pytest.mark.parametrize("name", ["manifest.json", "heavy.bin", "blocks.index", "blocks-00000.bin"])
def test_only_regular_files_are_read(name: str, tmp_path: Path) -> None:
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir):
        sketch = copy_of(tmp_path)
        (sketch / name).unlink()
        make(sketch / name)
        refused(sketch, f"{name}: is not a regular file")
        shutil.rmtree(sketch)


def test_a_manifest_of_forty_gigabytes_is_not_read(tmp_path: Path) -> None:
    sketch = copy_of(tmp_path)
    os.truncate(sketch / "manifest.json", 40 << 30)
    refused(sketch, "more than any sketch needs")


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    options = {"use_dictionary": False, "compression": "zstd", **options}
    pq.write_table(table, sink, write_statistics=False, store_schema=False, **options)
    return sink.getvalue()


INTEGERS = {"fingerprint": "DELTA_BINARY_PACKED", "value": "DELTA_BINARY_PACKED"}
COLUMNS = {**INTEGERS, "key": "DELTA_LENGTH_BYTE_ARRAY"}


@pytest.mark.long
def test_few_bytes_that_need_gigabytes(tmp_path: Path) -> None:
    """Constant differences: 20 million rows in a few kilobytes, and as many more as one likes."""
    rows = 20_000_000
    sketch = copy_of(tmp_path, "text")
    numbers = {"fingerprint": np.arange(rows, dtype=np.uint64), "value": np.full(rows, 10**6)}
    table = pa.table({**numbers, "key": pa.repeat(pa.scalar(b""), rows)})
    content = parquet(table, column_encoding=COLUMNS, row_group_size=rows)
    assert len(content) < rows // 100
    state(sketch, content, rows)
    refused(sketch, "at most")
    # the manifest lies, too
    state(sketch, content, 10)
    refused(sketch, "at most 10 rows")


@pytest.mark.long
def test_texts_that_need_gigabytes(tmp_path: Path) -> None:
    """One long text, thousands of times: by compression, by a dictionary, or by naming the one before."""
    rows = 3000
    texts = pa.array([b"x" * 100_000] * rows, pa.binary())
    table = pa.table(
        {"fingerprint": np.arange(rows, dtype=np.uint64), "value": np.full(rows, 100), "key": texts}
    )
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN", None):
        sketch = copy_of(tmp_path, "text")
        if encoding is None:
            content = parquet(table, use_dictionary=["key"])
        else:
            content = parquet(table, column_encoding={**INTEGERS, "key": encoding})
        assert len(content) < 1 << 20
        state(sketch, content, rows)
        refused(sketch, "heavy.parquet: (needs more memory|column '(key|fingerprint)')")
        shutil.rmtree(sketch)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value": pa.array([1.0, 2.0])}, "column 'value'"),
        ({"value": pa.array([100, None])}, "structure|nulls|pages"),
        ({"fingerprint": pa.array([2, 1], pa.uint64())}, "not sorted"),
        ({"fingerprint": pa.array([1, 2], pa.int64())}, "column 'fingerprint'"),
        ({"value": pa.array([0, 100])}, "a value is below"),
        ({"value": pa.array([100, (1 << 63) - 1])}, "above 2"),
        ({"more": pa.array([1, 2])}, "columns must be"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_rows_that_no_release_has(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    texts = pa.array([b"a", b"b"], pa.binary())
    columns = {
        "fingerprint": pa.array([1, 2], pa.uint64()),
        "value": pa.array([100, 100]),
        "key": texts,
        **change,
    }
    encodings = {name: COLUMNS.get(name, "PLAIN") for name in columns if columns[name].type != pa.float64()}
    sketch = copy_of(tmp_path, "text")
    state(sketch, parquet(pa.table(columns), column_encoding=encodings), 2)
    refused(sketch, words)


@pytest.mark.long
def test_what_compresses_beyond_measure_is_written_so_that_it_can_be_read() -> None:
    rows = 2000
    texts = pa.array([b"x" * 100_000] * rows, pa.large_binary())
    held = Heavy(np.arange(rows, dtype=np.uint64), np.full(rows, 100), texts)
    content = heavy_file.heavy_bytes(held)
    plan = hg.Sketch.open(HOME / "text.sketch").plan
    back = heavy_file.read_heavy(content, plan, rows, "here")
    assert back.texts is not None
    assert back.texts.equals(texts)


def test_texts_with_one_fingerprint_are_found_by_their_text(tmp_path: Path) -> None:
    """Someone can make many keys with one fingerprint: a lookup searches among them, it does not walk."""
    prints = hg.Sketch.open(HOME / "text.sketch")._storage.heavy.fingerprints
    fingerprint = int(prints[0])
    rows = 20_000
    texts = [b"%06d" % i for i in range(rows)]
    held = Heavy(
        np.full(rows, fingerprint, np.uint64), np.arange(rows) + 100, pa.array(texts, pa.large_binary())
    )
    sketch = copy_of(tmp_path, "text")
    state(sketch, heavy_file.heavy_bytes(held), rows)
    opened = hg.Sketch.open(sketch)
    asked = pa.array([texts[0], texts[12_345], texts[-1], b"absent"], pa.large_binary())
    values, heavy = opened._heavy_values(np.full(4, fingerprint, np.uint64), asked)
    assert values.tolist() == [100, 12_445, rows + 99, 0]
    assert heavy.tolist() == [True, True, True, False]


def test_a_lookup_checks_the_blocks_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hushgram.encodings import alp

    monkeypatch.setattr(alp, "BLOCK_BITS", 256)
    params = hg.ReleaseParams(epsilon="4", max_contributions=8, sizes=(4000, 1000))
    sketch = hg.release(golden.USERS, golden.KEYS, params, tmp_path / "a", release_key=golden.KEY)
    reads: list[int] = []
    layout = sketch.plan.layout
    assert layout is not None
    prints = np.array([12345], np.uint64)
    layout.look_up(prints, sketch.manifest.seeds, lambda i: reads.append(i) or sketch._storage.block(i))  # type: ignore[func-returns-value]
    assert 0 < len(reads) < layout.blocks
    starts = np.cumsum([0, *layout.block_lengths()])  # type: ignore[misc]
    content = bytearray((tmp_path / "a" / "blocks-00000.bin").read_bytes())
    for block in range(layout.blocks):
        damaged = bytearray(content)
        damaged[starts[block]] ^= 1
        (tmp_path / "a" / "blocks-00000.bin").write_bytes(damaged)
        again = hg.Sketch.open(tmp_path / "a")
        if block in reads:
            with pytest.raises(FormatError, match=f"block {block} does not match"):
                layout.look_up(prints, again.manifest.seeds, again._storage.block)
        else:
            layout.look_up(prints, again.manifest.seeds, again._storage.block)
