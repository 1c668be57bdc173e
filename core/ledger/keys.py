"""Keys of the ledger: release keys at rest, and MACs of rows.

The wrapping key is 32 bytes of the operator's: 64 hexadecimal digits in HUSHGRAM_WRAP_KEY, or the file that
HUSHGRAM_KEY_FILE names (hexadecimal or raw), or what the command in HUSHGRAM_KEY_COMMAND prints: a key that a key
management service (KMS, Vault) holds or unwraps. The command runs once per process. With the key

- release keys are stored encrypted by AES-256-GCM, so that a stolen ledger, journal or disk image does not reveal the
  noise of a release in progress. The context (data set, release id, attempt) is authenticated: a wrapped key does not
  open in another row;
- MACs are HMAC-SHA-256 under a key derived from it: nobody without the key can change a row unnoticed.

Without it, MACs are plain SHA-256. These detect accidents (a failing disk, a truncated copy, a manual edit), not
someone who recomputes them.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hushgram.errors import LedgerError
from hushgram.noise.entropy import os_entropy

__all__ = ["PEPPER", "Macs", "Row", "charge_of", "new_secret", "unwrap", "wrap"]

PEPPER = "fingerprints of inputs"
"""The context of the secret under which inputs are fingerprinted."""

_NONCE_BYTES, _SECRET_BYTES = 12, 32
_COMMAND_SECONDS = 60.0
_of_dataset = itemgetter("name", "epsilon", "delta", "composition", "created")
_fixed = itemgetter(
    "dataset", "name", "attempt", "job", "parameters", "inputs", "reserved", "users", "resumable"
)
_state = itemgetter("status", "charged", "target", "secret", "digest", "owner", "lease", "finished")
_of_event = itemgetter("position", "kind", "version", "epsilon", "delta", "details", "relation")

Row = Mapping[str, Any]


class Macs:
    """Compute MACs of rows, keyed if there is a wrapping key (see `hash_chain` for what they cover)."""

    def __init__(self, key: bytes | None) -> None:
        self._key = None if key is None else hmac.digest(key, b"hushgram ledger seals 1", "sha256")

    @classmethod
    def configured(cls) -> Macs:
        """Return those under the wrapping key of this process's environment, if any."""
        return cls(_wrapping_key())

    @property
    def scheme(self) -> str:
        """Whether MACs are keyed, and a check value of the key: the ledger records it."""
        return "sha256-1" if self._key is None else f"hmac-1:{self.mac('which key')[:16]}"

    def mac(self, purpose: str, *fields: object) -> str:
        """Return the MAC of some fields as 64 hexadecimal digits; JSON keeps any two lists of fields apart."""
        content = json.dumps((purpose, *fields)).encode()
        if self._key is None:
            return hashlib.sha256(content).hexdigest()
        return hmac.digest(self._key, content, "sha256").hex()

    def first_link(self, dataset: Row) -> str:
        """Return link_0 of a data set."""
        return self.mac("data set", *_of_dataset(dataset))

    def next_link(self, previous: str, release: Row, events: Sequence[Row]) -> str:
        """Return the link of a release that follows `previous`."""
        return self.mac("release", previous, _fixed(release), [_of_event(event) for event in events])

    def state(self, link: str, release: Row) -> str:
        """Return the MAC of a release's current state."""
        return self.mac("state", link, _state(release))

    def head(self, dataset: str, link: str, releases: Sequence[Row]) -> str:
        """Return the MAC of a data set's head: the last link, and what became of the charge of each release."""
        return self.mac("head", dataset, link, [charge_of(row) for row in releases])

    def settings(self, scheme: str, pepper: str | None, datasets: Sequence[Row]) -> str:
        """Return the MAC of the ledger's own settings and the list of all data sets, sorted by name."""
        return self.mac("ledger", scheme, pepper, [_of_dataset(row) for row in datasets])


def charge_of(release: Row) -> str:
    """Return whether a release may still be refunded ("open"), is charged for good, or was refunded."""
    if release["status"] == "reserved":
        return "open"
    return "charged" if release["charged"] else "refunded"


def new_secret() -> bytes:
    """Return 32 fresh random bytes."""
    return os_entropy().take(_SECRET_BYTES).tobytes()


def wrap(secret: bytes, context: str) -> str:
    """Return the text under which the ledger stores a secret of 32 bytes."""
    wrapping = _wrapping_key()
    if wrapping is None:
        return f"plain:{secret.hex()}"
    nonce = os_entropy().take(_NONCE_BYTES).tobytes()
    return f"aesgcm:{nonce.hex()}:{AESGCM(wrapping).encrypt(nonce, secret, context.encode()).hex()}"


def unwrap(text: str, context: str) -> bytes:
    """Return the secret behind a stored text; raise LedgerError if it does not open."""
    kind, _, body = text.partition(":")
    wrapping = None if kind == "plain" else _wrapping_key()
    if kind not in ("plain", "aesgcm"):
        raise LedgerError(
            f"{context}: its key is stored in a form that this hushgram cannot read; upgrade hushgram"
        )
    if kind == "aesgcm" and wrapping is None:
        raise LedgerError(
            f"{context}: its key is wrapped; set HUSHGRAM_KEY_FILE or HUSHGRAM_WRAP_KEY (or HUSHGRAM_KEY_COMMAND) to "
            "the key used then"
        )
    try:
        if wrapping is None:
            secret = bytes.fromhex(body)
        else:
            nonce, _, wrapped = body.partition(":")
            secret = AESGCM(wrapping).decrypt(bytes.fromhex(nonce), bytes.fromhex(wrapped), context.encode())
        if len(secret) != _SECRET_BYTES:
            raise ValueError
    except (InvalidTag, ValueError):
        raise LedgerError(
            f"{context}: its key does not open: the wrapping key differs from the one it was reserved with, or the "
            "ledger is damaged"
        ) from None
    return secret


_VARIABLES = ("HUSHGRAM_WRAP_KEY", "HUSHGRAM_KEY_FILE", "HUSHGRAM_KEY_COMMAND")


def _wrapping_key() -> bytes | None:
    """Return the operator's 32 bytes, or None if no wrapping key is set."""
    name = next((name for name in _VARIABLES if os.environ.get(name)), None)
    if name is None:
        return None
    value = os.environ[name]
    source = name if name == "HUSHGRAM_WRAP_KEY" else f"{name} {value}"
    if name == "HUSHGRAM_KEY_COMMAND":
        content = _printed_by(value)
    else:
        try:
            content = value.strip().encode() if name == "HUSHGRAM_WRAP_KEY" else Path(value).read_bytes()
        except OSError as problem:
            raise LedgerError(f"{source} cannot be read: {problem.strerror}") from None
    if len(content) == _SECRET_BYTES:
        return content
    try:
        key = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != _SECRET_BYTES:
        raise LedgerError(f"{source} must contain 32 bytes or 64 hexadecimal digits (openssl rand -hex 32)")
    return key


@functools.cache
def _printed_by(command: str) -> bytes:
    """Return what a command prints, without a shell; what it says when it fails is shown, what it prints never."""
    try:
        parts = shlex.split(command)
        done = subprocess.run(parts, capture_output=True, stdin=subprocess.DEVNULL, timeout=_COMMAND_SECONDS)
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as problem:
        reason = getattr(problem, "strerror", None) or type(problem).__name__
        raise LedgerError(f"HUSHGRAM_KEY_COMMAND {command} cannot be run: {reason}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise LedgerError(
            f"HUSHGRAM_KEY_COMMAND {command} failed with exit code {done.returncode}"
            + (f": {said[-1][:200]}" if said else "")
        )
    return done.stdout
