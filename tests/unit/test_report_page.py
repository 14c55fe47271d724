"""The composed page of a report: its parts are inert, and its policy allows no scripts but its own."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from verl_like.report.page import ASSETS, MARK, SCRIPTS, STYLES, page

HOSTILE = "</script><script>alert(1)</script><!-- {{scripts}} & \u2028 \ud83d"
HEAD: dict[str, Any] = {"title": HOSTILE, "live": None, "notes": [HOSTILE]}


class Elements(HTMLParser):
    """Collects the scripts, the style, the title and the policy of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("", {}, ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def texts(self, tag: str, **attributes: str) -> list[str]:
        return [text for name, has, text in self.found if name == tag and attributes.items() <= has.items()]

    def policy(self) -> dict[str, list[str]]:
        (content,) = [has["content"] for _, has, _ in self.found if has.get("http-equiv") == "Content-Security-Policy"]
        assert content is not None
        return {rule.split()[0]: rule.split()[1:] for rule in content.split("; ")}


def source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_head_is_read_back_whatever_its_texts_are() -> None:
    (found,) = Elements(page(HEAD, {}).decode()).texts("script", id="head")
    assert json.loads(found) == HEAD
    assert "<" not in found and "&" not in found


def test_a_report_is_recognised_by_its_start() -> None:
    assert page(HEAD, {}).index(MARK.encode()) < 64


def test_the_title_is_text() -> None:
    elements = Elements(page(HEAD, {}).decode())
    assert elements.texts("title") == [HOSTILE.replace("\ud83d", "?")]


def test_a_shard_is_base64_of_its_bytes_and_those_of_curves_stand_before_the_scripts() -> None:
    shards = {"r0-samples": gzip.compress(b"[1]"), "r0-curves": gzip.compress(b"{}")}
    elements = Elements(page(HEAD, shards).decode())
    ids = [has.get("id") or "code" for tag, has, _ in elements.found if tag == "script"]
    assert ids == ["head", "shard-r0-curves", *["code"] * len(SCRIPTS), "shard-r0-samples"]
    (text,) = elements.texts("script", id="shard-r0-samples")
    assert base64.b64decode(text) == shards["r0-samples"]


def test_the_policy_allows_the_scripts_and_the_style_of_the_page_alone() -> None:
    elements = Elements(page(HEAD, {}).decode())
    code = [text for tag, has, text in elements.found if tag == "script" and "type" not in has]
    assert len(code) == len(SCRIPTS)
    (style,) = elements.texts("style")
    assert elements.policy() == {
        "default-src": ["'none'"],
        "script-src": [source(text) for text in code],
        "style-src": [source(style)],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "require-trusted-types-for": ["'script'"],
    }


def test_only_a_live_page_may_connect_and_only_to_its_server() -> None:
    live = {**HEAD, "live": {"version": "a", "every_s": 5}}
    assert Elements(page(live, {}).decode()).policy()["connect-src"] == ["'self'"]


def test_a_name_of_a_shard_that_is_no_name_is_refused() -> None:
    with pytest.raises(AssertionError, match="needs a name of letters"):
        page(HEAD, {'x" onload="': b""})


def test_a_number_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        page({**HEAD, "made_unix_s": float("nan")}, {})


def test_every_asset_is_a_part_of_the_page() -> None:
    files = {file.relative_to(ASSETS).as_posix() for file in ASSETS.rglob("*") if file.is_file()}
    assert files == {*SCRIPTS, *STYLES, "report.html", "uplot/LICENSE", "uplot/README.md"}


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not name.startswith("uplot/")])
def test_a_script_is_strict_adds_no_global_name_and_makes_no_markup(name: str) -> None:
    code = (ASSETS / name).read_text()
    assert code.startswith('"use strict";\n// ')
    assert re.search(r"^\(function \(page\) \{\n", code, re.MULTILINE)
    assert code.endswith("})((globalThis.verlLikeReport ??= {}));\n")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser", code
    )
    assert max(map(len, code.splitlines())) <= 120
    assert len(code.splitlines()) <= 300
