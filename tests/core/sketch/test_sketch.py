"""The sketch on disk: round trips, golden files, and every kind of damage, each refused in one line."""

import hashlib
import json
import os
import resource
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushgram as hg
from hushgram.contributions.keys import column_positions
from hushgram.errors import FormatError, InputError, OutputError, ParameterError
from hushgram.sketch import manifest as manifests
from tests.golden import make as golden
from tests.second_reader.reader import _mix

GOLDEN = Path(golden.__file__).parent / "sketches"
KEY = hg.ReleaseKey(bytes(range(32)))
FILES = ["heavy.bin", "blocks.index", "blocks-00000.bin", "manifest.json"]


@pytest.fixture
def sketch(tmp_path):
    shutil.copytree(GOLDEN / "pure.sketch", tmp_path / "a.sketch")
    return tmp_path / "a.sketch"


def refused(path, words, verify=False):
    def read():
        opened = hg.Sketch.open(path)
        return opened.verify() if verify else opened.estimate(["a"])

    with pytest.raises(FormatError) as caught:
        read()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", golden.EVERY)
def test_golden_sketches_are_read_and_answer_as_recorded(name):
    sketch = hg.Sketch.open(GOLDEN / f"{name}.sketch")
    sketch.verify()
    recorded = json.loads((GOLDEN / f"{name}.json").read_text())
    found = golden.answers(sketch)
    assert found["unbiased"] == pytest.approx(recorded.pop("unbiased"), abs=1e-5)
    found.pop("unbiased")
    assert found == recorded


@pytest.mark.parametrize(("name", "params"), golden.EVERY.items())
def test_golden_sketches_are_written_again_to_the_byte(name, params, tmp_path):
    home = GOLDEN / f"{name}.sketch"
    users, keys = golden.rows_of(name)
    with golden.keys_per_file(name):
        place = {"release_key": golden.KEY, "name": f"golden-{name}"}
        hg.release(users, keys, params, tmp_path / "x.sketch", **place)
    assert sorted(os.listdir(tmp_path / "x.sketch")) == sorted(os.listdir(home))
    for file in sorted(os.listdir(home)):
        written = (tmp_path / "x.sketch" / file).read_bytes()
        if params.delta != 0 and file.endswith((".parquet", "manifest.json")):
            continue  # Parquet's footer names the Arrow version; its content is compared below
        assert written == (home / file).read_bytes()
    assert hg.Sketch.open(tmp_path / "x.sketch").heavy().equals(hg.Sketch.open(home).heavy())


def test_bits_are_where_the_format_says():
    """Independent of the reader: position and bit order straight from FORMAT.md."""
    home = GOLDEN / "pure.sketch"
    sketch = hg.Sketch.open(home)
    body = json.loads((home / "manifest.json").read_text())
    raw = (home / "blocks-00000.bin").read_bytes()
    f = 12_345
    columns = list(zip(body["plan"]["layout"]["column_sizes"], body["seeds"], strict=True))
    index = (home / "blocks.index").read_bytes()
    assert len(index) == 40 * len(columns)  # each column is one block here
    start = 0
    for i, (bits, seeds) in enumerate(columns):
        a1, a2, c = (int(seed, 16) for seed in seeds)
        g = _mix(f)
        h = ((a1 + g % 2**32) * (a2 + (g >> 32)) + c) % 2**64
        position = ((h >> 32) * bits) >> 32
        assert position == int(column_positions(np.array([f], np.uint64), sketch.manifest.seeds[i], bits)[0])
        byte = raw[start // 8 + position // 8]
        found = sketch.plan.layout.look_up(
            np.array([f], np.uint64), sketch.manifest.seeds, sketch._storage.block
        )
        assert bool(byte >> (position % 8) & 1) == bool(found[0, i])
        part = raw[start // 8 : (start + bits) // 8]
        digest = hashlib.sha256(part).digest()
        assert index[40 * i : 40 * i + 40] == len(part).to_bytes(8, "little") + digest
        start += bits


def test_same_key_same_bytes_and_one_record_changes_the_noise(tmp_path):
    params = hg.ReleaseParams(epsilon="1", max_contributions=2, bits_per_key=50)
    users, keys = [f"u{i}" for i in range(300)], [f"k{i % 20}" for i in range(300)]
    for name, k in (("a", keys), ("b", keys), ("c", [*keys[:-1], "other"])):
        hg.release(users, k, params, tmp_path / name, release_key=KEY)
    content = {n: {f: (tmp_path / n / f).read_bytes() for f in os.listdir(tmp_path / n)} for n in "abc"}
    assert content["a"] == content["b"]
    sizes = [hg.Sketch.open(tmp_path / n).plan.sizes for n in "ac"]
    assert (
        sum(x != y for x, y in zip(sizes[0].profile, sizes[1].profile, strict=True)) > 100
    )  # fresh noise on every number
    other = hg.release(users, keys, params, release_key=hg.ReleaseKey(bytes(32)))
    assert other.manifest.files != hg.Sketch.open(tmp_path / "a").manifest.files


def test_one_key_with_other_parameters_draws_other_noise():
    """Not the same draws at two scales, which would give the counts away."""
    keys = [f"k{i % 20}" for i in range(300)]
    seeds = []
    for most in (1, 2):
        params = hg.ReleaseParams(epsilon=most, max_contributions=most)  # all noise scales are the same
        sketch = hg.release(None, keys, params, release_key=KEY)
        seeds.append((sketch.manifest.seeds.tolist(), sketch.plan.sizes.profile))
    assert seeds[0][0] != seeds[1][0]
    assert sum(x != y for x, y in zip(seeds[0][1], seeds[1][1], strict=True)) > 100


@pytest.mark.parametrize("name", FILES)
def test_truncated_files(sketch, name):
    content = (sketch / name).read_bytes()
    for size in (0, 1, len(content) // 2, len(content) - 2):
        (sketch / name).write_bytes(content[:size])
        refused(sketch, name, verify=True)


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits_are_found(sketch, name):
    content = bytearray((sketch / name).read_bytes())
    for at in range(0, len(content), max(len(content) // 40, 1)):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        (sketch / name).write_bytes(damaged)
        with pytest.raises(FormatError):
            hg.Sketch.open(sketch).verify()
        with pytest.raises(FormatError):  # and no lookup answers from it
            hg.Sketch.open(sketch).estimate(["a", *map(str, range(500))])


@pytest.mark.parametrize("name", FILES)
def test_missing_files(sketch, name):
    (sketch / name).unlink()
    refused(sketch, name)


def test_not_a_sketch(tmp_path):
    refused(tmp_path, "not a finished sketch")
    refused(tmp_path / "none", "no such sketch")
    (tmp_path / "manifest.json").write_text("{}")
    refused(tmp_path, "not a hushgram sketch")
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe")
    refused(tmp_path, "not valid JSON")
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    refused(tmp_path, "not valid JSON")


def rewrite(sketch, change):
    """Alter the manifest and seal it again, as someone would who wants to fool the reader."""
    body = json.loads((sketch / "manifest.json").read_text())
    body.pop("checksum")
    change(body)
    body["checksum"] = manifests._checksum(body)
    (sketch / "manifest.json").write_text(json.dumps(body))


def put(*path_and_value):
    *path, last, value = path_and_value

    def change(body):
        for step in path:
            body = body[step]
        body[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("version", 5), "version '5' is not known here"),
        (put("version", 7), "version '7' is not known here"),
        (put("version", True), "is not known here"),
        (put("plan", "encoding", "alp-9"), "encoding 'alp-9'"),
        (put("plan", "encoding", None), "encoding"),
        (put("plan", "noise", "magic"), "noise 'magic'"),
        (put("plan", "params", "unit", "cat"), "unit"),
        (put("plan", "layout", "column_sizes", [1 << 40]), "column_sizes"),
        (put("plan", "layout", "column_sizes", [1 << 62]), "column_sizes"),
        (put("plan", "layout", "column_sizes", [64] * 63), "column_sizes"),
        (put("plan", "layout", "width", "1/1000"), "width"),
        (put("plan", "layout", "cap", 1), "cap"),
        (put("plan", "layout", "alpha", "1e9"), "alpha"),
        (put("plan", "domain_bits", 2**40), "domain_bits"),
        (put("plan", "domain_bits", None), "domain_bits"),
        (put("plan", "scale", "1e90"), "scale"),
        (put("plan", "threshold", 10**18), "threshold"),
        (put("plan", "sizes", "keys", 10**30), "keys"),
        (put("release", 7), "release"),
        (put("heavy", "rows", 10**12), "entries"),
        (put("files", 0, "name", "../../etc/passwd"), "files"),
        (put("files", 0, "size", -1), "size"),
        (put("files", 1, "size", 10**15), "bytes"),
        (put("sums", 0, 10**9), "sums"),
        (put("sums", [1, 1]), "sums"),
        (put("seeds", 0, ["zz", "1", "2"]), "seeds"),
        (put("seeds", []), "seeds"),
        (put("plan", "scale", "1/0"), "scale"),
        (put("plan", "params", "stated", "epsilon", "nan"), "epsilon"),
        (put("plan", "params", "selection", "magic"), "selection"),
        (put("plan", "params", "stated", "columns", 2), "unknown parameter 'columns'"),
        (put("plan", "params", "rounds", 2), "a number was chosen that is stated"),
        (put("plan", "threshold", "x"), "threshold"),
        (lambda body: body.pop("plan"), "manifest field"),
        (lambda body: body["plan"]["layout"].pop("width"), "manifest field"),
        (put("plan", "sizes", "profile", None), "profile"),
    ],
)
def test_absurd_manifests(sketch, change, words):
    rewrite(sketch, change)
    with pytest.raises(FormatError) as caught:
        hg.Sketch.open(sketch).estimate(["a"])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_heavy_file_of_another_kind(tmp_path):
    sketch = shutil.copytree(GOLDEN / "text.sketch", tmp_path / "text.sketch")
    table = pa.table({"fingerprint": ["a"], "value": [1.5]})
    pq.write_table(table, sketch / "heavy.parquet")
    entry = manifests.FileEntry.of("heavy.parquet", (sketch / "heavy.parquet").read_bytes())

    def change(body):
        body["files"][0].update(size=entry.size, sha256=entry.sha256)
        body["heavy"]["rows"] = 1

    rewrite(sketch, change)
    refused(sketch, "heavy.parquet: its columns must be")


# --- writing --------------------------------------------------------------------------------------------------------

PARAMS = hg.ReleaseParams(epsilon="1", max_contributions=1)


def test_a_path_that_exists_is_kept(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        hg.release(["u"], ["k"], PARAMS, tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"
    assert os.listdir(tmp_path) == ["x"]


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(OutputError):
        hg.release(["u"], ["k"], PARAMS, tmp_path / "x" / "y.sketch")


def test_a_full_disk_leaves_nothing(tmp_path):
    """The kernel refuses to grow files beyond a limit: the same error path as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OutputError, match="sketch cannot be written: File too large"):
            hg.release(
                ["u"],
                ["k"],
                hg.ReleaseParams(epsilon="1", max_contributions=1, bits_per_key=1000),
                tmp_path / "a.sketch",
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert os.listdir(tmp_path) == []


# --- what goes in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", ["0", "1e-6"])
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("u", "k")],
        [("u", "k")] * 50,
        [("u", f"k{i}") for i in range(50)],
        [(f"u{i}", "k") for i in range(50)],
        [("u", "x" * (1 << 20)), ("é", "\U0001f600\n\0")],
    ],
    ids=["empty", "one", "repeated", "one-user", "one-key", "strange"],
)
@pytest.mark.long
def test_small_and_strange_data(rows, delta):
    params = hg.ReleaseParams(epsilon="1", delta=delta, max_contributions=4)
    users, keys = pa.array([u for u, _ in rows], pa.string()), pa.array([k for _, k in rows], pa.string())
    for who in (users, None):
        sketch = hg.release(who, keys, params)
        sketch.verify()
        answer = sketch.estimate(["k", "nobody", "\U0001f600\n\0"], estimator="confidence")
        assert np.isfinite(answer["estimate"].to_numpy()).all()
        assert sketch.total(["k", "nobody"]).low <= sketch.total(["k", "nobody"]).high


def test_counts_far_above_the_bound():
    sketch = hg.release_histogram(["a", "b"], [10**9, 5], PARAMS, release_key=KEY)
    found = sketch.estimate(["a"])
    assert abs(found["estimate"][0].as_py() - 10**9) < 60
    assert found["source"][0].as_py() == "threshold"


@pytest.mark.parametrize("counts", [[-1], [1.5], [float("nan")], ["x"], [[1]], [1 << 60]])
def test_bad_counts(counts):
    with pytest.raises(InputError, match="counts"):
        hg.release_histogram(["a"], counts, PARAMS)


def test_bad_columns():
    with pytest.raises(InputError, match="row 1 is null"):
        hg.release(["a", "b"], ["k", None], PARAMS)
    with pytest.raises(InputError, match="users: row 0 is null"):
        hg.release([None, "b"], ["k", "k"], PARAMS)
    with pytest.raises(InputError, match="same length"):
        hg.release_histogram(["a"], [1, 2], PARAMS)


@pytest.mark.parametrize(
    "bad", [{"a": 1, "b": 2}, {"a", "b"}, "ab", b"ab", 7, None, np.zeros((2, 2)), [["a"], ["b"]], object(), [{}, {}]],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_column_is_said_in_one_line(bad):
    for users, keys in ((["u", "v"], bad), (bad, ["k", "k"])):
        if users is None:
            continue  # a release of records
        with pytest.raises(InputError, match=r"^(keys|users): (must be one column|values must be)") as caught:
            hg.release(users, keys, PARAMS)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="public keys: "):
        hg.release_public(None, ["k"], bad, PARAMS)
    with pytest.raises(ParameterError, match="params must be ReleaseParams"):
        hg.release(None, ["k"], bad)


def test_files_stay_within_the_size_formula():
    rng = np.random.default_rng(3)
    counts = (rng.pareto(1.1, 20_000) * 3 + 1).astype(np.int64)
    sketch = hg.release_histogram(np.arange(20_000), counts, PARAMS, release_key=KEY)
    assert sketch.size <= 1.02 * (sketch.plan.bits / 8 + 5 * sketch.manifest.heavy_rows) + 65536


def test_no_exact_number_in_the_manifest():
    """Whatever depends on data in the manifest has passed a mechanism: two keys, same data, other numbers."""
    rows = [f"k{i % 30}" for i in range(500)]
    bodies = []
    for seed in (1, 2):
        sketch = hg.release(None, rows, PARAMS, release_key=hg.ReleaseKey(bytes([seed]) * 32))
        bodies.append(json.loads((sketch.path / "manifest.json").read_text()))
    for field in ("records", "keys"):
        assert bodies[0]["plan"]["sizes"][field] != bodies[1]["plan"]["sizes"][field]
    assert bodies[0]["sums"] != bodies[1]["sums"]


def test_no_keys_are_no_rows():
    params = hg.ReleaseParams(epsilon="1", max_contributions=2)
    sketch = hg.release(["ann", "bob"], ["/a", "/b"], params)
    assert sketch.estimate([]).num_rows == 0
    assert sketch.total([]).estimate == 0


def test_a_notebook_shows_the_guarantee_and_runs_no_markup():
    params = hg.ReleaseParams(epsilon="1", max_contributions=2)
    sketch = hg.release(["ann", "bob"], ["/a", "/b"], params, name="<b>urls</b>")
    shown = sketch._repr_html_()
    assert "differentially private for one user" in shown
    assert "<b>" not in shown


def test_a_sketch_is_read_over_webhdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a server that redirects each request, as a NameNode does to a DataNode."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    made = hg.release(
        ["a"], ["/1"], hg.ReleaseParams(epsilon="1", max_contributions=1), tmp_path / "a b.sketch"
    )
    asked = []

    class Node(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            file = tmp_path / unquote(url.path.removeprefix("/webhdfs/v1/").removeprefix("data/"))
            asked.append(url.query)
            if not file.is_file():
                self.send_error(404)
            elif "data/" not in url.path:
                self.send_response(307)
                self.send_header("Location", self.path.replace("/webhdfs/v1/", "/webhdfs/v1/data/"))
                self.end_headers()
            else:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(file.read_bytes())

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("HADOOP_USER_NAME", "me")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Node) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        at = f"webhdfs://127.0.0.1:{server.server_port}"
        there = hg.Sketch.open(f"{at}/a b.sketch/")
        with pytest.raises(FormatError, match="there is no such sketch"):
            hg.Sketch.open(f"{at}/none.sketch")
        server.shutdown()
    assert there.estimate(["/1"]).to_pylist() == made.estimate(["/1"]).to_pylist()
    assert set(asked) == {"op=OPEN&user.name=me"}
