"""Templates of the pages: everything is escaped but pictures that the code made itself."""

from __future__ import annotations

from typing import Any

from hushgram import __version__
from hushgram.errors import ParameterError

__all__ = ["render"]


def render(template: str, **values: Any) -> str:
    """The page of a template; markup in values is escaped unless it is `Markup`."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise ParameterError("pages need an extra package; pip install 'hushgram[pages]'") from None
    environment = Environment(
        loader=PackageLoader("hushgram.pipelines.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(version=__version__, **values)
