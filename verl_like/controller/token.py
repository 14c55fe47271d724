"""Ray's token: a user who can read it can run code as the owner of that Ray."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from verl_like.masking import OWNER_ONLY


def close_token() -> None:
    """Restrict Ray's token to its owner: Ray (2.60) writes it with the user's umask, usually readable by all.

    A new folder is restricted before Ray writes into it. Files of other users are left unchanged.
    """
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")).expanduser()
    with suppress(OSError):
        token.parent.mkdir(mode=0o700)
    with suppress(OSError):
        if token.stat().st_uid == os.getuid() and stat.S_IMODE(token.stat().st_mode) & 0o077:
            token.chmod(OWNER_ONLY)
