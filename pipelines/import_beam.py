"""Beam without its chatter."""

from __future__ import annotations

import importlib
import logging

__all__ = ["import_beam"]


def import_beam() -> None:
    """Imports Beam, without the warnings that its import logs about clients that nobody asked for."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        importlib.import_module("apache_beam.io.gcp.bigquery")  # the one that warns; the runners import it
    finally:
        logging.disable(before)
