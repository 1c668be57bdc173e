"""Keys as columns: canonical bytes, fingerprints, user tokens."""

import datetime
import itertools

import mmh3
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgram.contributions.keys import (
    column_positions,
    draw_seeds,
    encode,
    fingerprints,
    hash_bytes,
    one_array,
)
from hushgram.contributions.users import user_tokens
from hushgram.errors import InputError
from hushgram.noise.entropy import ReleaseKey

SECRET = bytes(range(32))


def tokens(values):
    high, low = user_tokens(pa.array(values, pa.large_binary()), SECRET)
    return list(zip(high.tolist(), low.tolist(), strict=True))


@given(st.lists(st.text(max_size=40), max_size=20))
@settings(max_examples=60, deadline=None)
def test_fingerprint_is_mmh3_of_utf8(texts):
    texts = [t.encode("utf-8", "ignore").decode() for t in texts]
    expected = [mmh3.hash64(t.encode(), 0, True, signed=False)[0] for t in texts]
    assert fingerprints(pa.array(texts, pa.string())).tolist() == expected


def test_fingerprints_of_bytes_of_every_length():
    """Blocks and tails, NaN patterns, values that are hashed one by one, and a slice."""
    rng = np.random.default_rng(3)
    values = [rng.bytes(length) for length in (*range(600), 5000)]
    values += [bytes([255]) * length for length in range(70)]
    column = pa.array(values, pa.large_binary())
    expected = [mmh3.hash64(value, 0, True, signed=False)[0] for value in values]
    assert hash_bytes(column).tolist() == expected
    assert hash_bytes(column.slice(3, 400)).tolist() == expected[3:403]
    assert fingerprints(column).tolist() == expected
    assert fingerprints(column.slice(0, 41)).tolist() == expected[:41]  # short: without a dictionary
    assert fingerprints(column.slice(0, 0)).tolist() == []


def test_one_meaning_whatever_the_container():
    texts = ["a", "b", "a", "é"]
    expected = fingerprints(texts).tolist()
    for column in (
        pa.array(texts),
        pa.chunked_array([texts[:2], texts[2:]]),
        pa.array(texts, pa.large_string()),
        pa.array(texts).dictionary_encode(),
        pa.array([t.encode() for t in texts]),
        np.array(texts),
        np.array(texts, object),
        pa.array(texts, pa.string_view()) if hasattr(pa, "string_view") else texts,
    ):
        assert fingerprints(column).tolist() == expected
    assert fingerprints(np.array([7, -3])).tolist() == fingerprints(["7", "-3"]).tolist()
    assert fingerprints(np.array([2**64 - 1], np.uint64)).tolist() == fingerprints([str(2**64 - 1)]).tolist()


def test_given_dictionaries_may_repeat_and_hold_unused_values():
    given = pa.DictionaryArray.from_arrays(pa.array([2, 0]), pa.array(["x", "unused", "x"]))
    encoded = encode(given)
    assert encoded.values.to_pylist() == [b"x"]
    assert encoded.codes.tolist() == [0, 0]


def test_slices_are_read_from_their_own_rows():
    column = pa.array([f"user{i}" for i in range(100)])
    assert fingerprints(column.slice(40, 5)).tolist() == fingerprints(column).tolist()[40:45]
    values = column.cast(pa.large_binary())
    whole, part = user_tokens(values, SECRET), user_tokens(values.slice(40, 5), SECRET)
    assert part[0].tolist() == whole[0].tolist()[40:45]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.5, 2.0], "text, bytes, whole numbers, decimals, dates, times, UUIDs or booleans"),
        ([datetime.timedelta(1)], "got duration"),
        (["a", 1], "all text"),
        (["a", None], "row 1 is null"),
        (pa.array([None, None], pa.string()), "row 0 is null"),
        ([["a"]], "got list"),
    ],
)
def test_what_has_no_canonical_bytes_is_refused(column, message):
    with pytest.raises(InputError, match=message):
        fingerprints(column)


def test_empty_and_long_values():
    assert len(fingerprints([])) == 0
    assert len(fingerprints(pa.array([], pa.string()))) == 0
    long = "x" * (1 << 20)
    assert fingerprints([long, ""]).tolist() == [
        mmh3.hash64(v.encode(), 0, True, signed=False)[0] for v in (long, "")
    ]


def test_tokens_are_cbc_mac_of_length_and_bytes():
    """Against a direct computation with AES-CBC, message by message."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    for value in (b"", b"a", b"12345678", b"123456789", b"x" * 24, b"x" * 25, b"y" * 240):
        message = len(value).to_bytes(8, "little") + value
        message += bytes(-len(message) % 16)
        tag = Cipher(algorithms.AES(SECRET), modes.CBC(bytes(16))).encryptor().update(message)[-16:]
        assert tokens([value]) == [(int.from_bytes(tag[:8], "little"), int.from_bytes(tag[8:], "little"))]


@given(st.lists(st.binary(max_size=300), unique=True, max_size=12))
@settings(max_examples=60, deadline=None)
def test_distinct_values_have_distinct_tokens_and_order_does_not_matter(values):
    assert len(set(tokens(values))) == len(values)
    assert tokens(values[::-1]) == tokens(values)[::-1]


def test_zero_padding_and_shortening_cannot_be_confused():
    import hashlib
    import hmac

    long = b"z" * 241
    short = hmac.new(SECRET, long, hashlib.sha256).digest()
    assert len(set(tokens([b"a", b"a\0", b"a\0\0", b"", b"\0", long, short]))) == 7


def test_hash_bytes_matches_documented_example():
    assert f"{hash_bytes(pa.array([b'hello'], pa.large_binary()))[0]:016x}" == "cbd8a7b341bd9b02"


def test_chunks_of_dictionaries_that_do_not_combine_are_decoded():
    small = pa.dictionary(pa.int8(), pa.string())
    many = [pa.array([f"{part}{i}" for i in range(100)]).cast(small) for part in "ab"]
    nulls = [pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))] * 2
    for chunks in (many, nulls):
        column = one_array(pa.chunked_array(chunks))
        assert column.to_pylist() == [value for chunk in chunks for value in chunk.to_pylist()]


def test_a_date_or_time_is_spelled_by_itself_whatever_stands_before_it():
    """Arrow reads a list of dates and times as it reads the first: one record would change the keys of all others."""
    day, moment = datetime.date(2026, 11, 18), datetime.datetime(2026, 11, 18, 9, 30)
    zoned = moment.replace(tzinfo=datetime.UTC)
    alone = {value: encode([value]).values.to_pylist() for value in (day, moment, zoned)}
    assert len({tuple(text) for text in alone.values()}) == 3
    for values in itertools.permutations(alone):
        for column in (list(values), np.array(values, dtype=object), pd.Series(values, dtype=object)):
            found = encode(column)
            texts = found.values.take(pa.array(found.codes)).to_pylist()
            assert texts == [text for value in values for text in alone[value]]


def test_a_number_of_any_size_is_its_digits():
    found = encode([7, 2**63, 2**70])
    assert found.values.to_pylist() == [b"7", str(2**63).encode(), str(2**70).encode()]
    with pytest.raises(InputError, match="all whole numbers"):
        encode([7, 10**90])


def test_a_part_of_a_day_is_no_error():
    days = pa.array([0, 1, 86_400_001, 2**62], pa.int64()).view(pa.date64())
    assert encode(days).values.to_pylist()[:2] == [b"1970-01-01", b"1970-01-02"]


@pytest.mark.parametrize("first", [0, 12_345, 1 << 31, (1 << 40) - 7])
def test_consecutive_cells_are_spread_as_by_chance(first: int) -> None:
    """The hash function alone is a line on numbers below 2^32: pairs of cells met never, or thousands of times."""
    size, cells = 64_000, np.arange(first, first + 2_000, dtype=np.uint64)
    seeds = draw_seeds(ReleaseKey(bytes([7]) * 32), 1_000)
    expected = len(cells) * (len(cells) - 1) / 2 / size
    scores = []
    for each in seeds:
        often = np.bincount(column_positions(cells, each, size).astype(np.int64))
        scores.append((int((often * (often - 1) // 2).sum()) - expected) / expected**0.5)
    assert np.abs(scores).max() < 7
    assert 0.8 < np.square(scores).mean() < 1.25
