"""Pseudo-terminals of tests."""

from __future__ import annotations

import pty

import pytest


def open_terminal() -> tuple[int, int]:
    """Return the descriptors of both ends of a pseudo-terminal; skip the test on a machine that has none."""
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"the test needs a pseudo-terminal, and there is none: {error}")
