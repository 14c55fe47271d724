"""The environment of scorer processes: built-in graders see what they need, and no tokens.

A function of the user's runs as the user, and sees all that the run sees.
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
# A proxy's address may hold a password, so that only what calls services sees it.
_CALL_SERVICES = frozenset(["remote_http", "llm_judge"])
_OF_SERVICES = frozenset(
    ["ALL_PROXY", "CURL_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"]
) | {"SSL_CERT_DIR", "SSL_CERT_FILE"}
_REFERENCE = re.compile(r"\$\{?([A-Za-z_]\w*)")


def scorer_environment(functions: Sequence[FunctionSpec], environment: Mapping[str, str]) -> dict[str, str]:
    """What of ``environment`` a scorer process of these functions gets.

    Variables that a built-in's arguments name are among it: ``$NAME`` within a text, or a text that is a name.
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
