"""``verl-like serve``: the report of runs in a browser, which follows them while they train."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from verl_like.report.refreshed import RefreshedContent
from verl_like.report.server import HOST, ReportServer

TOKEN_BYTES = 18


def serve(folders: Sequence[Path], *, port: int, show: Callable[[str], None]) -> int:
    """Serve the report of these runs on this machine until Ctrl-C, and return the exit status.

    The port is open to every user of the machine, so the address has a random token that only this terminal shows.

    Args:
        port: 0 for a free one.
        show: prints a line.

    Raises:
        ValueError: a folder is no run, or the port cannot be used.
    """
    content = RefreshedContent(folders)
    with ReportServer(content, secrets.token_urlsafe(TOKEN_BYTES), port=port) as server:
        number = server.server_address[1]
        show(server.url)
        show(
            f"From another machine: ssh -L {number}:{HOST}:{number} THIS_MACHINE, and the same address. Ctrl-C ends it."
        )
        try:
            content.current()  # requests wait meanwhile
            server.serve_forever()
        except KeyboardInterrupt:
            pass
    return 0
