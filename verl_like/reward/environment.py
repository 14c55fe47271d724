"""Build the environment of scorer processes: built-in graders get the variables they need, and no secrets.

A user's function has the rights of the user, and gets the whole environment of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from verl_like.reward.specs import FunctionSpec

_NEEDED = frozenset(
    ["HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP", "TMPDIR"]
) | {"TZ", "USER"}
_NEEDED_PREFIXES = ("LC_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON")
# A proxy's address may contain a password, so that only functions that call services get it.
_CALL_SERVICES = frozenset(["remote_http", "llm_judge"])
_OF_SERVICES = frozenset(
    ["ALL_PROXY", "CURL_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"]
) | {"SSL_CERT_DIR", "SSL_CERT_FILE"}
_REFERENCE = re.compile(r"\$\{?([A-Za-z_]\w*)")


def scorer_environment(functions: Sequence[FunctionSpec], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of ``environment`` that a scorer process of these functions gets.

    It includes the variables that a built-in's arguments name: as ``$NAME`` within a text, or as a text that is a name.
    """
    if any(":" in spec.function for spec in functions):
        return dict(environment)
    wanted = set(_NEEDED)
    for spec in functions:
        wanted.update(_named(spec.kwargs.values()))
        if spec.function in _CALL_SERVICES:
            wanted |= _OF_SERVICES | {name.lower() for name in _OF_SERVICES}
    return {name: value for name, value in environment.items() if name in wanted or name.startswith(_NEEDED_PREFIXES)}


def _named(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
            yield from _REFERENCE.findall(value)
        elif isinstance(value, Mapping):
            yield from _named(value.values())
        elif isinstance(value, Sequence):
            yield from _named(value)
