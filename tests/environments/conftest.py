"""Users' files get our stand-ins for other projects, whatever ``make peers`` has installed."""

from __future__ import annotations

import sys

import pytest

from tests._peer_modules import PEERS


@pytest.fixture(autouse=True)
def without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove from the path what tests that compare with other projects have added to it; processes inherit the path."""
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(PEERS)])
