"""How the ε of a release is divided among its mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from hushgram.errors import ParameterError
from hushgram.numbers import Number, rational, show

__all__ = ["Split"]

_OWNER = "ReleaseParams"
_PARTS = ("size", "threshold", "encoding", "contributions")


@dataclass(frozen=True)
class Split:
    """How ε is divided: sizing, threshold step, encoding, choice of C. These are the budgets and add up to ε."""

    size: Fraction
    threshold: Fraction
    encoding: Fraction
    contributions: Fraction = Fraction(0)

    def as_text(self) -> dict[str, str]:
        """JSON-ready form; the last part only where there is one."""
        parts = {field.name: show(getattr(self, field.name)) for field in fields(self)}
        return parts if self.contributions else {name: parts[name] for name in _PARTS[:3]}

    @classmethod
    def from_text(cls, text: Mapping[str, Any]) -> Split:
        """What `as_text` wrote."""
        stated = {"contributions": "0", **text}
        return cls(*(rational(stated[name], f"split.{name}", _OWNER) for name in _PARTS))

    @classmethod
    def named(cls, shares: Mapping[str, Number], epsilon: Fraction, encoding: str) -> Split:
        """From shares by name; the encoding's goes by its own word or by "encoding"."""
        named = {"encoding" if name == encoding else name: share for name, share in shares.items()}
        unknown = set(named) - set(_PARTS)
        if unknown or len(named) < len(shares):
            wrong = sorted(unknown)[0] if unknown else encoding
            raise ParameterError(
                f"{_OWNER}: split has unknown part {wrong!r}; parts are size, threshold, {encoding}"
            )
        return cls(*(epsilon * rational(named.get(name, 0), f"split.{name}", _OWNER) for name in _PARTS))
