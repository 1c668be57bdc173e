"""The one door to randomness.

Beam may compute any collection twice. If a second computation drew fresh noise on the same data and both
results got out, the stated ε would be wrong. So noise is a function here, not an event: every noisy step
draws from

    AES-256-CTR(HMAC-SHA256(key of the release on its data, step ‖ shard ‖ digest of the exact input of the step))

where the key of a sparse histogram on its data is derived from the release key, the parameters and a digest of
*all* exact data (`for_parameters`, `for_data`). The same data give the same noise on every retry, runner and worker
count; any change of the data, in any shard, changes all noise. The digest of the step's own input stays beside it:
should an input change while a job runs, no two inputs of a step meet the same draws.

What the proofs rely on: that HMAC-SHA256 and AES-256-CTR are pseudorandom, that a release key is fresh for each
release, and that it stays secret: whoever has it can subtract the noise.

Nothing else in hushgram draws random bits; a test looks for other imports of randomness.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from hushgram.errors import ParameterError

__all__ = ["BitSource", "ReleaseKey", "digest", "os_entropy"]

_KEY_BYTES = 32
_COUNTER = bytes(16)


class BitSource:
    """An AES-256-CTR key stream, read once from the front.

    >>> source = BitSource(bytes(32))
    >>> [int(byte) for byte in source.take(4)]
    [220, 149, 192, 120]
    """

    __slots__ = ("_stream",)

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ParameterError(f"BitSource: key must have {_KEY_BYTES} bytes, got {len(key)}")
        self._stream: CipherContext = Cipher(algorithms.AES(key), modes.CTR(_COUNTER)).encryptor()

    def take(self, n: int) -> NDArray[np.uint8]:
        """The next ``n`` bytes of the stream."""
        out = np.empty(n + 15, dtype=np.uint8)  # update_into wants room for one block less a byte
        written = self._stream.update_into(np.zeros(n, dtype=np.uint8).data, out.data)
        return out[:written]

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next ``n`` 64-bit words (little-endian on every machine)."""
        return self.take(8 * n).view("<u8").astype(np.uint64, copy=False)


class ReleaseKey:
    """256 secret bits from which all noise of one release follows.

    >>> key = ReleaseKey(bytes(32))
    >>> key
    ReleaseKey(secret)
    >>> key.source("threshold", 7, b"").words(1) == key.source("threshold", 7, b"").words(1)
    array([ True])
    """

    __slots__ = ("_secret", "_use")

    def __init__(self, secret: bytes, use: Literal["free", "rerun", "once"] = "free") -> None:
        if not isinstance(secret, bytes) or len(secret) != _KEY_BYTES:
            raise ParameterError(
                f"ReleaseKey: the secret must be {_KEY_BYTES} bytes; use ReleaseKey.generate()"
            )
        self._secret = secret
        self._use: str = use

    @classmethod
    def generate(cls) -> ReleaseKey:
        """A fresh key from the operating system."""
        return cls(os.urandom(_KEY_BYTES))

    @classmethod
    def from_hex(cls, text: str) -> ReleaseKey:
        """The key that ``hex`` wrote."""
        try:
            return cls(bytes.fromhex(text.strip()))
        except ValueError:
            raise ParameterError("ReleaseKey: the text must be 64 hexadecimal digits") from None

    def hex(self) -> str:
        """The secret itself, for the ledger that keeps it until the release is committed."""
        return self._secret.hex()

    def source(self, step: str, shard: int = 0, digest: bytes = b"") -> BitSource:
        """The noise of one step on one shard whose exact input has this digest."""
        return BitSource(self._derive(b"noise", step, shard, digest))

    def claim(self, mechanism: str) -> None:
        """Called by a mechanism that is asked one question after another, before it draws.

        Under one key, other questions on the same data get other noise, and many such runs average it away. So the
        key of a release that may be run again is refused here, and one that is handed out once is claimed once.
        """
        if self._use == "rerun":
            raise ParameterError(
                f"{mechanism}: this key is given to every rerun of its release, whose questions could differ; "
                "open the budget with interactive=True"
            )
        if self._use == "claimed":
            raise ParameterError(f"{mechanism}: this key answers the questions of another object already")
        if self._use == "once":
            self._use = "claimed"

    def subkey(self, label: str) -> bytes:
        """32 bytes for another use (user tokens, hash seeds), independent of all noise."""
        return self._derive(b"subkey", label, 0, b"")

    def for_parameters(self, job: str, parameters: Mapping[str, Any]) -> ReleaseKey:
        """The key under which a job with these parameters draws.

        Should one key ever meet two settings, their noise is independent instead of the same draws at two scales.
        """
        text = json.dumps(parameters, sort_keys=True)
        return ReleaseKey(self._derive(b"bind", "context", 0, digest(job, text)))

    def for_data(self, data_digest: bytes) -> ReleaseKey:
        """The key under which all noise on these data is drawn; ``data_digest`` is of all of them."""
        return ReleaseKey(self._derive(b"bind", "data", 0, data_digest))

    def _derive(self, kind: bytes, step: str, shard: int, context: bytes) -> bytes:
        name = step.encode()
        frame = kind + b"\0" + len(name).to_bytes(4, "little") + name + shard.to_bytes(8, "little") + context
        return hmac.new(self._secret, frame, hashlib.sha256).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReleaseKey) and hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self._secret)

    def __repr__(self) -> str:
        return "ReleaseKey(secret)"

    def __reduce__(self) -> tuple[type[ReleaseKey], tuple[bytes]]:
        return ReleaseKey, (self._secret,)


def os_entropy() -> BitSource:
    """A source seeded by the operating system: for one-off draws outside a release.

    >>> len(os_entropy().take(10))
    10
    """
    return BitSource(os.urandom(_KEY_BYTES))


def digest(*parts: bytes | str | int | NDArray[np.generic]) -> bytes:
    """SHA-256 of the parts, framed so that no two different lists of parts share an input.

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
    """The kind of a part and its bytes, the same on every machine."""
    if isinstance(part, np.ndarray):
        array = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
        return array.dtype.str.encode(), array.data.cast("B") if array.nbytes else b""
    if isinstance(part, str):
        return b"str", part.encode()
    if isinstance(part, bytes):
        return b"bytes", part
    return b"int", str(int(part)).encode()
