"""The one door to randomness: known answers, independence of steps, secrecy, and that there is no other door."""

import ast
import contextlib
import copy
import multiprocessing
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.noise.entropy import (
    BitSource,
    InteractiveKey,
    ReleaseKey,
    StreamKey,
    digest,
    os_entropy,
    take_key,
)

ROOT = Path(__file__).parents[3]
KEY = ReleaseKey(bytes(range(32)))


def test_key_stream_is_aes_256_ctr():
    # NIST SP 800-38A, F.1.5 uses another key; this is AES-256 of counters 0, 1 under the zero key.
    assert BitSource(bytes(32)).take(16).tobytes().hex() == "dc95c078a2408989ad48a21492842087"
    assert BitSource(bytes(32)).take(32).tobytes()[16:].hex() == "530f8afbc74536b9a963b4f1c4cb738b"


def test_stream_does_not_depend_on_how_it_is_read():
    one, many = KEY.source("a"), KEY.source("a")
    whole = one.take(1000)
    parts = np.concatenate([many.take(n) for n in (1, 2, 13, 0, 500, 484)])
    assert (whole == parts).all()


def test_sources_differ_by_step_shard_digest_and_key():
    streams = {
        source.take(16).tobytes()
        for source in (
            KEY.source("a"),
            KEY.source("b"),
            KEY.source("a", 1),
            KEY.source("a", 0, b"x"),
            KEY.source("a", 1, b"x"),
            ReleaseKey(bytes(32)).source("a"),
            BitSource(KEY.subkey("a")),
            os_entropy(),
            os_entropy(),
        )
    }
    assert len(streams) == 9


def test_key_is_secret_in_print_and_survives_pickle():
    assert "secret" in repr(KEY)
    assert KEY.hex() not in repr(KEY) + str(KEY)
    assert pickle.loads(pickle.dumps(KEY)) == KEY
    assert ReleaseKey.from_hex(KEY.hex()) == KEY
    assert ReleaseKey.generate() != ReleaseKey.generate()


@pytest.mark.parametrize("bad", [b"short", "text", b""])
def test_bad_keys_are_refused(bad):
    with pytest.raises(ParameterError, match="32 bytes"):
        ReleaseKey(bad)
    with pytest.raises(ParameterError, match="hexadecimal"):
        ReleaseKey.from_hex("zz")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda way: way.__name__)
def test_an_interactive_key_is_neither_copied_nor_pickled(again):
    """Copies of a key answered one stream of questions each, at one charge."""
    key = InteractiveKey.generate()
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        again(key)
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        again({"in": [key]}) if again is not copy.copy else again(key)
    key.take("tests")


def test_an_interactive_key_is_taken_once_and_has_nothing_else_to_draw_from():
    key = InteractiveKey(bytes(32))
    public = {name for name in dir(key) if not name.startswith("_")}
    assert public == {"generate", "take"}
    assert key.take("tests") == StreamKey(bytes(32)) != ReleaseKey(bytes(32))
    for _ in range(2):
        with pytest.raises(ParameterError, match=r"^LaplaceAnswers: this key was taken"):
            key.take("LaplaceAnswers")
    assert "00" not in repr(key)


def test_of_many_threads_one_takes_an_interactive_key():
    key, taken, start = InteractiveKey.generate(), [], threading.Barrier(16)

    def grab():
        start.wait()
        with contextlib.suppress(ParameterError):
            taken.append(key.take("tests"))

    threads = [threading.Thread(target=grab) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1


def test_a_forked_process_takes_no_interactive_key():
    key, queue = InteractiveKey.generate(), multiprocessing.get_context("fork").SimpleQueue()

    def child():
        try:
            queue.put(str(key.take("tests")))
        except ParameterError as problem:
            queue.put(str(problem))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    assert "taken by another mechanism" in queue.get()


@pytest.mark.parametrize(
    "key", [KEY, KEY.for_parameters("job", {}), KEY.for_data(b""), StreamKey(bytes(32)), None]
)
def test_a_key_of_another_type_answers_no_questions_as_they_come(key):
    with pytest.raises(ParameterError, match=r"^M: .*InteractiveKey.generate\(\), or open_budget[^\n]*$"):
        take_key(key, "M")


def test_digest_is_injective_on_framing_types_and_dtypes():
    parts = [
        (b"ab", b"c"),
        (b"a", b"bc"),
        (b"abc",),
        ("abc",),
        (b"abc", b""),
        (b"", b"abc"),
        (1,),
        ("1",),
        (1, 0),
        (10,),
        (np.array([1], np.int64),),
        (np.array([1], np.uint64),),
        (np.array([1, 0], np.int32),),
        (np.array([], np.int64),),
        (),
    ]
    assert len({digest(*part) for part in parts}) == len(parts)


FORBIDDEN = {"random", "secrets", "uuid"}
ALLOWED_RANDOM = {"pipelines/synthetic.py"}
ALLOWED_OS = {"core/noise/entropy.py"}


def doors(path: Path) -> list[str]:
    """Every use of randomness in a file, other than hushgram.noise.entropy."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [
                a.name
                for a in node.names
                if a.name.split(".")[0] in FORBIDDEN or "random" in a.name.split(".")
            ]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [*node.module.split("."), *(a.name for a in node.names)]
            if node.module.split(".")[0] in FORBIDDEN or "random" in names or "urandom" in names:
                found.append(node.module)
        elif isinstance(node, ast.Attribute) and node.attr in (
            "random",
            "urandom",
            "default_rng",
            "getrandom",
        ):
            found.append(ast.unparse(node))
    return found


def sources():
    return [p for room in ("core", "transforms", "pipelines") for p in sorted((ROOT / room).rglob("*.py"))]


def test_there_is_no_other_door_to_randomness():
    found = {}
    for path in sources():
        name = str(path.relative_to(ROOT))
        used = doors(path)
        if name in ALLOWED_OS:
            used = [use for use in used if use != "os.urandom"]
        if used and name not in ALLOWED_RANDOM:
            found[name] = used
    assert not found, "randomness is drawn outside hushgram.noise.entropy"


def test_the_door_test_rejects_other_doors(tmp_path):
    for text in (
        "import random",
        "from numpy import random",
        "import numpy as np\nnp.random.rand()",
        "import os\nos.urandom(4)",
        "from os import urandom",
        "import secrets",
        "import numpy.random",
    ):
        (tmp_path / "x.py").write_text(text)
        assert doors(tmp_path / "x.py"), text


# Modules between the exact counts and the released bits; functions named here only choose batch sizes or messages.
RELEASE_PATH = [
    "core/noise/entropy.py",
    "core/noise/intervals.py",
    "core/noise/sampling.py",
    "core/contributions/users.py",
    "core/contributions/keys.py",
    "core/contributions/bounding.py",
    "core/contributions/histogram.py",
    "core/contributions/sums.py",
    "core/sparse_histogram/plan.py",
    "core/sparse_histogram/params.py",
    "core/release_in_memory.py",
    "core/sparse_histogram/sizing.py",
    "core/key_selection/rounds.py",
    "core/key_selection/threshold.py",
    "core/key_selection/weighted.py",
    "core/sparse_histogram/selection.py",
    "core/sparse_histogram/spec.py",
    "core/sparse_histogram/steps.py",
    "core/encodings/__init__.py",
    "core/encodings/alp.py",
    "core/noise/laplace.py",
    "core/noise/noises.py",
]
# `_integers` takes floats apart, `wrong_values` refuses some: both exactly, by powers of two.
# `_guess` is where an exact search starts. `Remainder.mean` is for decoders.
FLOAT_ALLOWED = {"_gap_batch", "_guess", "_integers", "_rate", "likelihood", "mean", "wrong_values"}


def floats(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    found = []

    def visit(node, inside):
        if isinstance(node, ast.FunctionDef):
            inside = node.name
        if inside not in FLOAT_ALLOWED:
            if isinstance(node, ast.Constant) and isinstance(node.value, float):
                found.append(f"{inside}: {node.value}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
                found.append(f"{inside}: float()")
            if isinstance(node, ast.Attribute) and (
                node.attr.startswith("float") or ast.unparse(node).startswith("math.")
            ):
                found.append(f"{inside}: {ast.unparse(node)}")
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree, "module")
    return found


@pytest.mark.parametrize("name", RELEASE_PATH)
def test_no_float_on_the_release_path(name):
    assert floats(ROOT / name) == []


def test_the_float_test_rejects_floats(tmp_path):
    for text in ("x = 0.5", "x = float(3)", "import math\nmath.exp(1)", "import numpy as np\nnp.float64(1)"):
        (tmp_path / "x.py").write_text(text)
        assert floats(tmp_path / "x.py"), text
