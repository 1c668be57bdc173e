"""The only source of randomness.

Beam may compute any collection twice. If a second computation drew fresh noise on the same data and both
results got out, the stated ε would be wrong. So noise is a function here, not an event: every noisy step
draws from

    AES-256-CTR(HMAC-SHA256(key of the release on its data, step ‖ shard ‖ digest of the exact input of the step))

where the key of a sparse histogram on its data is derived from the release key, the parameters and a digest of
*all* exact data (`for_parameters`, `for_data`). The same data give the same noise on every retry, runner and worker
count; any change of those data, in any shard, changes all noise. The digest of the step's own input stays beside it:
should an input change while a job runs, no two inputs of a step meet the same draws.

Where questions come one after another, that is not enough: other questions under one key get other noise. Their keys
are of another type, `InteractiveKey`, which the first mechanism takes.

What the proofs rely on: that HMAC-SHA256 and AES-256-CTR are pseudorandom, that a release key is fresh for each
release, and that it stays secret: whoever has it can subtract the noise.

Nothing else in hushgram draws random bits; a test looks for other imports of randomness.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from hushgram.errors import ParameterError

__all__ = [
    "BitSource",
    "InteractiveKey",
    "ReleaseKey",
    "StreamKey",
    "Turns",
    "digest",
    "os_entropy",
    "take_key",
]

_KEY_BYTES = 32
_COUNTER = bytes(16)
# Bytes that a source reads ahead of what is taken, at first and at most: samplers take a few at a time, and often.
_AHEAD, _MOST_AHEAD = 1 << 8, 1 << 16


class BitSource:
    """An AES-256-CTR key stream, read once from the front.

    >>> source = BitSource(bytes(32))
    >>> [int(byte) for byte in source.take(4)]
    [220, 149, 192, 120]
    """

    __slots__ = ("_ahead", "_next", "_stream")

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ParameterError(f"BitSource: key must have {_KEY_BYTES} bytes, got {len(key)}")
        self._stream: CipherContext = Cipher(algorithms.AES(key), modes.CTR(_COUNTER)).encryptor()
        self._ahead, self._next = np.zeros(0, np.uint8), _AHEAD

    def take(self, n: int) -> NDArray[np.uint8]:
        """Return the next ``n`` bytes of the stream."""
        missing = n - len(self._ahead)
        if missing > 0:
            more = self._read(max(missing, self._next))
            self._ahead = np.concatenate((self._ahead, more)) if len(self._ahead) else more
            self._next = min(2 * self._next, _MOST_AHEAD)
        out, self._ahead = self._ahead[:n], self._ahead[n:]
        return out

    def _read(self, n: int) -> NDArray[np.uint8]:
        out = np.empty(n + 15, dtype=np.uint8)  # update_into needs space for one more block less one byte
        written = self._stream.update_into(np.zeros(n, dtype=np.uint8).data, out.data)
        return out[:written]

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next ``n`` 64-bit words (little-endian on every machine)."""
        return self.take(8 * n).view("<u8").astype(np.uint64, copy=False)


class _Secret:
    """256 secret bits that noise is drawn from."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = _checked(secret, type(self).__name__)

    def source(self, step: str, shard: int = 0, digest: bytes = b"") -> BitSource:
        """Return the source of noise of one step on one shard whose exact input has this digest."""
        return BitSource(self._derive(b"noise", step, shard, digest))

    def subkey(self, label: str) -> bytes:
        """Return 32 bytes for another use (user tokens, hash seeds), independent of all noise."""
        return self._derive(b"subkey", label, 0, b"")

    def _derive(self, kind: bytes, step: str, shard: int, context: bytes) -> bytes:
        name = step.encode()
        frame = kind + b"\0" + len(name).to_bytes(4, "little") + name + shard.to_bytes(8, "little") + context
        return hmac.new(self._secret, frame, hashlib.sha256).digest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Secret) or type(other) is not type(self):
            return False
        return hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self._secret)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self._secret,)


class ReleaseKey(_Secret):
    """256 secret bits from which all noise of one batch release follows; every rerun of it has the same ones.

    >>> key = ReleaseKey(bytes(32))
    >>> key
    ReleaseKey(secret)
    >>> key.source("threshold", 7, b"").words(1) == key.source("threshold", 7, b"").words(1)
    array([ True])
    """

    __slots__ = ()

    @classmethod
    def generate(cls) -> ReleaseKey:
        """Return a fresh key from the operating system."""
        return cls(os.urandom(_KEY_BYTES))

    @classmethod
    def from_hex(cls, text: str) -> ReleaseKey:
        """Read the key that `hex` wrote."""
        try:
            return cls(bytes.fromhex(text.strip()))
        except ValueError:
            raise ParameterError("ReleaseKey: the text must be 64 hexadecimal digits") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> ReleaseKey:
        """Read the key from a file with 64 hexadecimal digits."""
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ParameterError(f"{os.fspath(path)} cannot be read: {reason}") from None
        return cls.from_hex(text)

    def hex(self) -> str:
        """Return the secret itself: for whoever must run the same release again."""
        return self._secret.hex()

    def for_parameters(self, job: str, parameters: Mapping[str, Any]) -> ReleaseKey:
        """Return the key under which a job with these parameters draws.

        Should one key ever meet two settings, their noise is independent instead of the same draws at two scales.
        """
        text = json.dumps(parameters, sort_keys=True)
        return ReleaseKey(self._derive(b"bind", "context", 0, digest(job, text)))

    def for_data(self, data_digest: bytes) -> ReleaseKey:
        """Return the key under which all noise on these data is drawn; ``data_digest`` is of all of them."""
        return ReleaseKey(self._derive(b"bind", "data", 0, data_digest))


class StreamKey(_Secret):
    """The secret of one interactive mechanism, which took it from an `InteractiveKey`.

    It can be pickled: the workers of a stateful Beam stage need it, and replay a stream under it.
    """

    __slots__ = ()


class InteractiveKey:
    """The secret of one mechanism that answers questions as they come, taken by the first that is given it.

    Under one secret, other questions on the same data get other noise, and many such runs average it away. So this is
    no `ReleaseKey`, and neither can be made of the other: it cannot be copied, pickled, or used in a forked process,
    and nothing can be drawn from it but by the mechanism that takes it.

    >>> key = InteractiveKey.generate()
    >>> key.take("LaplaceAnswers")
    StreamKey(secret)
    >>> key.take("LaplaceAnswers")
    Traceback (most recent call last):
        ...
    hushgram.errors.ParameterError: LaplaceAnswers: this key was taken by another mechanism; each needs one of its own
    """

    __slots__ = ("_process", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = [_checked(secret, "InteractiveKey")]
        self._process = os.getpid()

    @classmethod
    def generate(cls) -> InteractiveKey:
        """Return a fresh key from the operating system."""
        return cls(os_entropy().take(_KEY_BYTES).tobytes())

    def take(self, mechanism: str) -> StreamKey:
        """Return the secret, once."""
        try:
            if self._process == os.getpid():
                return StreamKey(self._secret.pop())  # pop: of two threads one gets it
        except IndexError:
            pass
        raise ParameterError(
            f"{mechanism}: this key was taken by another mechanism; each needs one of its own"
        )

    def __repr__(self) -> str:
        return "InteractiveKey(secret)"

    def __reduce__(self) -> str:
        raise TypeError("an InteractiveKey answers one stream of questions and is neither copied nor pickled")


class Turns:
    """One question at a time, in the process that a mechanism was begun in.

    Two threads at once, or a forked process, would meet the same draws with other questions: what they differ in is
    then exact, and each counts its questions by itself.

    >>> with Turns("Sparse"):
    ...     pass
    """

    __slots__ = ("_lock", "_mechanism", "_process")

    def __init__(self, mechanism: str) -> None:
        self._mechanism, self._process, self._lock = mechanism, os.getpid(), threading.Lock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            raise ParameterError(
                f"{self._mechanism}: was begun in another process, whose noise a forked one shares; begin another here"
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def take_key(key: object, mechanism: str) -> StreamKey:
    """Take the secret that ``mechanism`` draws from; refuse the key of a release that may be run again."""
    if not isinstance(key, InteractiveKey):
        raise ParameterError(
            f"{mechanism}: takes questions as they come and needs an InteractiveKey, got {type(key).__name__}; use "
            "InteractiveKey.generate(), or open_budget(…, interactive=True) and its run.interactive_key"
        )
    return key.take(mechanism)


def _checked(secret: bytes, owner: str) -> bytes:
    if not isinstance(secret, bytes) or len(secret) != _KEY_BYTES:
        raise ParameterError(f"{owner}: the secret must be {_KEY_BYTES} bytes; use {owner}.generate()")
    return secret


def os_entropy() -> BitSource:
    """Return a source seeded by the operating system: for one-off draws outside a release.

    >>> len(os_entropy().take(10))
    10
    """
    return BitSource(os.urandom(_KEY_BYTES))


def digest(*parts: bytes | str | int | NDArray[np.generic]) -> bytes:
    """Hash the parts by SHA-256, framed so that no two different lists of parts share an input.

    >>> digest(b"ab", b"c") == digest(b"a", b"bc")
    False
    """
    state = hashlib.sha256()
    for part in parts:
        kind, body = _frame(part)
        state.update(len(kind).to_bytes(2, "little") + kind + len(body).to_bytes(8, "little"))
        state.update(body)
    return state.digest()


def _frame(part: bytes | str | int | NDArray[np.generic]) -> tuple[bytes, bytes | memoryview]:
    """Return the kind of a part and its bytes, the same on every machine."""
    if isinstance(part, np.ndarray):
        array = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
        return array.dtype.str.encode(), array.data.cast("B") if array.nbytes else b""
    if isinstance(part, str):
        return b"str", part.encode()
    if isinstance(part, bytes):
        return b"bytes", part
    return b"int", str(int(part)).encode()
