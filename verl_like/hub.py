"""Whether the Hugging Face hub can be reached, known in seconds: its own library tries for half a minute each time."""

from __future__ import annotations

import functools
import os
import ssl
import sys
import urllib.error
import urllib.request

from verl_like.call_threads import THREADS, NoAnswer

TIMEOUT_S = 5.0
OFFLINE = "HF_HUB_OFFLINE"


def is_offline() -> bool:
    """Whether the user has said that there is no hub, as its library reads it."""
    return any(
        os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in (OFFLINE, "TRANSFORMERS_OFFLINE")
    )


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def go_offline() -> None:
    """Have this process, and those it starts, look for models and data sets in the hub's cache alone."""
    os.environ[OFFLINE] = "1"
    if constants := sys.modules.get("huggingface_hub.constants"):  # which has read the variable already
        vars(constants)[OFFLINE] = True


def out_of_reach() -> str | None:
    """Why no connection to the hub can be made; None where it answers, whatever it answers."""
    return _out_of_reach(endpoint())


@functools.cache
def _out_of_reach(url: str) -> str | None:
    # A name server that is silent has no timeout. Left and not abandoned: it does not delay the interpreter's exit.
    try:
        return THREADS.begin(f"the hub at {url}", lambda: _no_connection(url)).result(TIMEOUT_S)
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
    """What the network refused; None for a certificate, which the hub's library holds against others than Python's."""
    if not isinstance(reason, OSError) or isinstance(reason, ssl.SSLError):
        return None
    return reason.strerror or str(reason)
