"""One record, or one value of a dictionary, needs bounded memory whatever it expands to: measured in a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.errors import InputError
from hushgram.inputs import read_item
from tests.core.inputs.helpers import plan_of, read, write

ROOT = Path(__file__).parents[3]
# With batches of 4 MiB; in the cases below 300 MB and more come out at once where nothing bounds it.
_MIB = 150
_READ = """
import json, resource, sys
from pathlib import Path
from hushgram.inputs import read_item, source
from tests.core.inputs.helpers import plan_of
source.BATCH_BYTES = source.MAX_KEYS_BYTES = 4 << 20
plan = plan_of(Path(sys.argv[1]), ids=("user", sys.argv[2]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows, largest, rejected = 0, 0, {}
for item in plan.items:
    for chunk in read_item(item, plan):
        rows, largest = rows + chunk.batch.num_rows, max(largest, chunk.batch.nbytes)
        for reason, count in chunk.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
print(json.dumps([rows, largest >> 20, rejected, peak]))
"""
WIDE, WORDS = "c" * 20_000, " ".join(f"w{i}" for i in range(20_000))


@pytest.mark.parametrize(
    ("name", "key", "records", "rows", "rejected"),
    [
        ("a.csv", "[c, q | words]", [(WIDE, WORDS), ("FR", "a b")], 2, 1),
        ("a.parquet", "[c, q | words]", [(WIDE, WORDS), ("FR", "a b")], 2, 1),
        ("a.jsonl", "[c, q | words]", [("x" * 5000, " ".join("abcdefgh" * 50))] * 200, 80_000, 0),
        ("a.jsonl", "q | ngrams 100", [("FR", "b" * 101), ("FR", "a" * 3_000_000)], 2, 1),
        ("a.parquet", "c", [("k" * 100_000, "")] * 3000, 3000, 0),
    ],
)
@pytest.mark.long
def test_what_comes_out_of_a_record_is_bounded_before_it_is_made(
    tmp_path: Path, name: str, key: str, records: list[tuple[str, str]], rows: int, rejected: int
) -> None:
    file, table = tmp_path / name, [{"user": "u", "c": c, "q": q} for c, q in records]
    if name == "a.parquet":
        columns = {}
        for column in table[0]:
            values = list(dict.fromkeys(record[column] for record in table))
            codes = pa.array([values.index(record[column]) for record in table], pa.int32())
            columns[column] = pa.DictionaryArray.from_arrays(codes, values)
        pq.write_table(pa.table(columns), file, store_schema=False)
    elif name == "a.csv":
        write(file, "user,c,q\n" + "".join(f"u,{c},{q}\n" for c, q in records))
    else:
        write(file, "".join(json.dumps(record) + "\n" for record in table))
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(file), key], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found, largest, reasons, peak = json.loads(done.stdout)
    assert (found, sum(reasons.values())) == (rows, rejected), reasons
    assert largest <= 4
    assert peak < _MIB


def test_the_bound_follows_from_the_record_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands beside it: each of these records is as in a file of its own."""
    monkeypatch.setattr("hushgram.inputs.source.MAX_KEYS_BYTES", 2000)
    texts = ["a b " * n + "\\" * m for n in (0, 1, 5, 12, 40) for m in (0, 3, 150)]
    lines = [json.dumps({"user": f"u{i}", "c": text[::-1], "q": text}) + "\n" for i, text in enumerate(texts)]
    for key in ("q | words", "[c, q | words]", "[q | ngrams 3, c]"):
        alone = [read(write(tmp_path / "a.jsonl", line), ids=("user", key)) for line in lines]
        for batch in (1, 500, 1 << 20):
            monkeypatch.setattr("hushgram.inputs.source.BATCH_BYTES", batch)
            rows, rejected = read(write(tmp_path / "b.jsonl", "".join(lines)), ids=("user", key))
            assert rows == sorted((row for found, _ in alone for row in found), key=repr)
            assert sum(rejected.values()) == sum(sum(reasons.values()) for _, reasons in alone) > 0


def test_out_of_memory_is_not_called_damage_and_tells_no_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 4000080000 failed")

    pq.write_table(pa.table({"user": ["u"], "key": ["k"]}), tmp_path / "a.parquet")
    for file in (tmp_path / "a.parquet", write(tmp_path / "a.csv", "user,key\nu,k\n")):
        plan = plan_of(file)
        monkeypatch.setattr("hushgram.inputs.columns._good", full)
        with pytest.raises(InputError, match=r"a\.(parquet|csv): needs more memory than there is") as caught:
            list(read_item(plan.items[0], plan))
        assert "malloc" not in str(caught.value)
        assert "4000080000" not in str(caught.value)
