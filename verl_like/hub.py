"""Check within seconds whether the Hugging Face hub can be reached; its own library retries for half a minute."""

from __future__ import annotations

import functools
import os
import ssl
import sys
import urllib.error
import urllib.request

from verl_like.call_threads import CallThreads, NoAnswer
from verl_like.context import current

TIMEOUT_S = 5.0
OFFLINE = "HF_HUB_OFFLINE"


def is_offline() -> bool:
    """Return whether the user has disabled the hub, by the variables that its library reads."""
    return any(
        os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in (OFFLINE, "TRANSFORMERS_OFFLINE")
    )


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def go_offline() -> None:
    """Make this process and its children search for models and data sets only in the hub's cache."""
    os.environ[OFFLINE] = "1"
    if constants := sys.modules.get("huggingface_hub.constants"):  # it has already read the variable
        vars(constants)[OFFLINE] = True


def out_of_reach() -> str | None:
    """Return why no connection to the hub can be made; None if it gives any answer."""
    return _out_of_reach(endpoint())


@functools.cache
def _out_of_reach(url: str) -> str | None:
    # A lookup at a silent name server has no timeout. The call is not abandoned, and does not delay the exit.
    try:
        return current(CallThreads).begin(f"the hub at {url}", lambda: _no_connection(url)).result(TIMEOUT_S)
    except NoAnswer:
        return f"no answer within {TIMEOUT_S:g} s"


def _no_connection(url: str) -> str | None:
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=TIMEOUT_S).close()
    except urllib.error.HTTPError:  # it answers
        return None
    except urllib.error.URLError as error:
        return _of_network(error.reason)
    except OSError as error:
        return _of_network(error)
    return None


def _of_network(reason: object) -> str | None:
    """Return the network's error; None for certificate errors, since the hub's library trusts other certificates."""
    if not isinstance(reason, OSError) or isinstance(reason, ssl.SSLError):
        return None
    return reason.strerror or str(reason)
