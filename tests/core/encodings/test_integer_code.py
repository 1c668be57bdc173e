"""The bytes of a block of buckets: every number comes back, near the entropy, and hostile bytes are refused."""

import contextlib
import math

import numpy as np
import pytest

from hushgram.encodings.integer_code import LARGEST, decode, decode_unsigned, encode, encode_unsigned
from hushgram.errors import FormatError

RNG = np.random.default_rng(7)


def laplace(scale, size):
    q = math.exp(-1 / scale)
    return RNG.geometric(1 - q, size) - RNG.geometric(1 - q, size)


CASES = {
    "none": np.zeros(0, np.int64),
    "one": np.array([5]),
    "equal": np.full(1000, -(10**12)),
    "largest": np.array([LARGEST, -LARGEST, 0, 1, -1]),
    "uniform": RNG.integers(-LARGEST, LARGEST, 500),
    "zipf": np.minimum(RNG.zipf(1.2, 16384), 10**9) + laplace(8, 16384),
    "narrow": laplace(0.3, 777),
    "wide": laplace(1e6, 4096),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_come_back(name):
    numbers = CASES[name].astype(np.int64)
    content = encode(numbers)
    assert content.dtype == np.uint8
    assert (decode(content, len(numbers)) == numbers).all()
    assert (encode(numbers) == content).all()


@pytest.mark.parametrize("top", [1, 5, 2**20, 2**60, 2**64 - 1])
@pytest.mark.parametrize("size", [0, 1, 700])
def test_unsigned_numbers_come_back(top, size):
    numbers = RNG.integers(0, top, size, np.uint64, endpoint=True)
    numbers[:1] = top
    content = encode_unsigned(numbers)
    assert (decode_unsigned(content, size) == numbers).all()
    for length in range(0, len(content), 7):
        with pytest.raises(FormatError):
            decode_unsigned(content[:length], size)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 33])
def test_no_other_k_takes_fewer_bits(size):
    """The search leaves out values of k that are proved to be worse: the first byte is the least of the best."""
    for top in range(1, 64):
        uniform = RNG.integers(0, 1 << top, size, np.uint64)
        for numbers in (uniform, uniform >> RNG.integers(0, top, size).astype(np.uint64)):
            most = sorted(numbers.tolist())[size // 2].bit_length()
            costs = [sum(_bits(number >> k) + k for number in numbers.tolist()) for k in range(most + 1)]
            assert encode_unsigned(numbers)[0] == costs.index(min(costs))


def _bits(q):
    return q if q < 6 else 6 + 2 * ((q - 5).bit_length() - 1)


@pytest.mark.parametrize("mean", [0.6, 3.0, 700.0])
def test_gaps_take_little_more_than_their_entropy(mean):
    """As gaps of sorted cells and values above a threshold are: geometric."""
    p = 1 / (1 + mean)
    entropy = -((1 - p) * math.log2(1 - p) + p * math.log2(p)) / p
    spent = 8 * len(encode_unsigned((RNG.geometric(p, 1 << 14) - 1).astype(np.uint64))) / (1 << 14)
    assert spent < entropy + 0.15


@pytest.mark.parametrize("scale", [1, 2, 8, 40])
def test_near_the_entropy_of_noise(scale):
    q = math.exp(-1 / scale)
    p = [(1 - q) / (1 + q) * q ** abs(z) for z in range(-60 * scale, 60 * scale + 1)]
    entropy = -sum(x * math.log2(x) for x in p)
    spent = 8 * len(encode(laplace(scale, 1 << 14))) / (1 << 14)
    assert spent < entropy + 0.25
    assert scale > 8 or spent <= 8  # a byte or less


def test_large_numbers_cost_their_logarithm():
    numbers = laplace(2, 1 << 14)
    numbers[:160] = 10**9
    more = len(encode(numbers)) - len(encode(laplace(2, 1 << 14)))
    assert more < 160 * 10


def test_every_truncation_and_extension_is_refused():
    content = encode(np.concatenate([laplace(3, 300), [10**6, -(10**6)]]))
    for length in range(len(content)):
        with pytest.raises(FormatError):
            decode(content[:length], 302)
    with pytest.raises(FormatError):
        decode(np.append(content, np.uint8(0)), 302)
    for count in (0, 1, 301, 303, 1 << 14):
        with pytest.raises(FormatError):
            decode(content, count)


def test_flipped_bits_are_refused_or_read_as_other_numbers():
    """Any bytes at all give numbers in range or a FormatError, and nothing large is allocated."""
    content = encode(np.concatenate([laplace(3, 300), [10**6]]))
    for bit in range(8 * len(content)):
        broken = content.copy()
        broken[bit // 8] ^= np.uint8(1 << bit % 8)
        try:
            numbers = decode(broken, 301)
        except FormatError:
            continue
        assert len(numbers) == 301
        assert np.abs(numbers).max() <= LARGEST
    for _ in range(300):
        with contextlib.suppress(FormatError):
            decode(RNG.integers(0, 256, 40).astype(np.uint8), 5)
