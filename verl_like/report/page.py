"""Compose the report's page: one HTML file of template, style sheet, scripts, head and shards."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MARK = '<meta name="generator" content="verl-like report">'  # near the start of each report, to recognise one
ASSETS = Path(__file__).parent / "assets"
# In the sequence of their use: a script calls functions of those above it while it is loaded.
SCRIPTS = (
    "uplot/uPlot.iife.min.js",
    *("dom.js", "format.js", "data.js", "route.js", "theme.js", "tip.js", "series.js", "charts.js", "stages.js"),
    *("texts.js", "advice.js", "summary.js", "step.js", "runs.js", "stepper.js", "curves.js", "lanes.js", "time.js"),
    *("index.js", "filters.js", "list.js", "trend.js", "search.js", "tokens.js", "episode.js", "sample.js"),
    *("samples.js", "settings.js", "main.js"),
)
STYLES = ("uplot/uPlot.min.css", "report.css")
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}  # of JSON in a script element


def page(head: Mapping[str, Any], shards: Mapping[str, bytes]) -> bytes:
    """Return the page of a report.

    Args:
        head: the contents of the head; with ``head["live"]`` the page fetches head and shards from its server.
        shards: gzip-compressed JSON by name. The shards of curves stand before the scripts, so that the first charts
            are drawn while a browser still reads the samples.
    """
    scripts = [_script(name) for name in SCRIPTS]
    style = "\n".join((ASSETS / name).read_text("utf-8") for name in STYLES)
    early = [name for name in shards if name.endswith("-curves")]
    parts = {
        "policy": _policy(scripts, style, is_live=bool(head.get("live"))).encode(),
        "title": html.escape(str(head["title"])).encode("utf-8", "replace"),
        "style": style.encode(),
        "head": json.dumps(head, allow_nan=False).translate(ESCAPES).encode(),
        "first_shards": _shards(early, shards),
        "scripts": b"\n".join(b"<script>%b</script>" % script for script in scripts),
        "shards": _shards([name for name in shards if name not in early], shards),
    }
    # One pass over the template: a part that contains {{title}} stays as it is.
    pieces = re.split(rb"{{(\w+)}}", (ASSETS / "report.html").read_bytes())
    return b"".join(parts[piece.decode()] if at % 2 else piece for at, piece in enumerate(pieces))


def _script(name: str) -> bytes:
    source = (ASSETS / name).read_bytes()
    assert b"</script" not in source.lower() and b"<!--" not in source, f"{name} would end its script element"
    return source


def _shards(names: Iterable[str], shards: Mapping[str, bytes]) -> bytes:
    """Return script elements with base64 of the named shards; no browser runs their type."""
    return b"\n".join(_shard(name, shards[name]) for name in names)


def _shard(name: str, packed: bytes) -> bytes:
    assert re.fullmatch(r"[\w.-]+", name), f"the shard {name!r} needs a name of letters, digits and - . _"
    return b'<script type="text/plain" id="shard-%b">%b</script>' % (name.encode(), base64.b64encode(packed))


def _policy(scripts: Iterable[bytes], style: str, *, is_live: bool) -> str:
    """Return the Content-Security-Policy: the scripts and the style of this file by their hashes, and nothing else."""
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(_source(script) for script in scripts)}",
        f"style-src {_source(style.encode())}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",  # no text becomes markup, where a browser knows this rule
        *(["connect-src 'self'"] if is_live else []),
    ]
    return "; ".join(rules)


def _source(code: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'"
