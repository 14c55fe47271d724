"""Other projects, from ``.peers`` (``make peers``) or an installation."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

PEERS = Path(__file__).parents[1] / ".peers"


def add_peers_to_path() -> None:
    """Let other projects be imported from ``.peers``; our own packages come first."""
    if PEERS.is_dir() and str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))


def peer_module(name: str) -> ModuleType:
    """Import a module; skip the test if it is not there."""
    add_peers_to_path()
    pytest.importorskip(name.partition(".")[0], reason=f"{name} is not installed: make peers")
    return importlib.import_module(name)
