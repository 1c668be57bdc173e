"""Release keys at rest: wrapped by AES-256-GCM where the operator gives a wrapping key.

The wrapping key is 32 bytes, as 64 hexadecimal digits in HUSHGRAM_WRAP_KEY, or in the file that
HUSHGRAM_KEY_FILE names (hexadecimal or raw). With it, a stolen ledger, journal or disk image does not give
away the noise of a release under way. The context (data set, release id, attempt) is authenticated: a wrapped
key moved to another row does not open.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hushgram.errors import LedgerError
from hushgram.noise.entropy import os_entropy

__all__ = ["fresh", "open_pepper", "unwrap", "wrap", "wrap_pepper", "wrapping_key"]

_NONCE_BYTES, _SECRET_BYTES = 12, 32
_PEPPER = "fingerprints of inputs"


def fresh() -> bytes:
    """A new secret."""
    return os_entropy().take(_SECRET_BYTES).tobytes()


def wrap(secret: bytes, context: str) -> str:
    """The text that the ledger stores for the 32 bytes of a key."""
    wrapping = wrapping_key()
    if wrapping is None:
        return f"plain:{secret.hex()}"
    nonce = os_entropy().take(_NONCE_BYTES).tobytes()
    sealed = AESGCM(wrapping).encrypt(nonce, secret, context.encode())
    return f"aesgcm:{nonce.hex()}:{sealed.hex()}"


def unwrap(text: str, context: str) -> bytes:
    """The secret behind a stored text."""
    kind, _, body = text.partition(":")
    if kind == "plain":
        try:
            return _whole(bytes.fromhex(body))
        except ValueError:
            raise LedgerError(f"{context}: its key is not as it was written; restore the ledger") from None
    if kind != "aesgcm":
        raise LedgerError(f"{context}: its key has a form that this hushgram does not know; upgrade hushgram")
    wrapping = wrapping_key()
    if wrapping is None:
        raise LedgerError(
            f"{context}: its key is wrapped; set HUSHGRAM_KEY_FILE or HUSHGRAM_WRAP_KEY to the key of then"
        )
    nonce, _, sealed = body.partition(":")
    try:
        return _whole(AESGCM(wrapping).decrypt(bytes.fromhex(nonce), bytes.fromhex(sealed), context.encode()))
    except (InvalidTag, ValueError):
        raise LedgerError(f"{context}: the wrapping key is another one than when it was reserved") from None


def wrap_pepper(pepper: bytes) -> str:
    """The secret for fingerprints of inputs, 32 bytes, in the form in which a ledger stores it."""
    return wrap(pepper, _PEPPER)


def open_pepper(text: str) -> bytes:
    """The secret behind `wrap_pepper`."""
    return unwrap(text, _PEPPER)


def wrapping_key() -> bytes | None:
    """The operator's 32 bytes, or None where there are none."""
    text, path = os.environ.get("HUSHGRAM_WRAP_KEY"), os.environ.get("HUSHGRAM_KEY_FILE")
    if text:
        return _parse(text.strip().encode(), "HUSHGRAM_WRAP_KEY")
    if not path:
        return None
    try:
        return _parse(Path(path).read_bytes(), f"HUSHGRAM_KEY_FILE {path}")
    except OSError as problem:
        raise LedgerError(f"HUSHGRAM_KEY_FILE {path} cannot be read: {problem.strerror}") from None


def _whole(secret: bytes) -> bytes:
    if len(secret) != _SECRET_BYTES:
        raise ValueError
    return secret


def _parse(content: bytes, source: str) -> bytes:
    if len(content) == 32:
        return content
    try:
        key = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        raise LedgerError(f"{source} must hold 32 bytes or 64 hexadecimal digits (openssl rand -hex 32)")
    return key
