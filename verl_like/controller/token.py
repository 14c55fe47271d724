"""Ray's token: whoever reads it can run code as the user whose Ray it opens."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from verl_like.masking import OWNER_ONLY


def close_token() -> None:
    """Leave Ray's token to its owner alone: Ray (2.60) writes it as the user's mask has it, mostly readable by all.

    A new folder is closed before Ray writes into it. What belongs to somebody else stays as it is.
    """
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")).expanduser()
    with suppress(OSError):
        token.parent.mkdir(mode=0o700)
    with suppress(OSError):
        if token.stat().st_uid == os.getuid() and stat.S_IMODE(token.stat().st_mode) & 0o077:
            token.chmod(OWNER_ONLY)
