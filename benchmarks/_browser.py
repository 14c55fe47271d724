"""Headless Chromium for ``benchmarks.report`` and ``_report_pictures``: what a reader of a report waits for."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = 5
LIMIT_S = 60.0
FIRST_CHART = "performance.getEntriesByName('first-chart')"  # the page marks when its first chart was painted
MB = 1e6


def is_installed() -> bool:
    """Return whether playwright and a Chromium in PATH were found."""
    return _chromium() is not None and importlib.util.find_spec("playwright") is not None


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def launched() -> Iterator[Any]:
    """Yield a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


def figures(page: Path, *, steps: int, word: str) -> dict[str, float | None]:
    """Return ``first_paint_s`` and ``heap_mb``; None for both without playwright or Chromium.

    Args:
        steps: of the run; the samples of some of them are looked at.
        word: in few samples, for a search over all texts.
    """
    if not is_installed():
        return {"first_paint_s": None, "heap_mb": None}
    with launched() as browser:
        paints = [_first_paint_s(browser, page) for _ in range(ROUNDS)]
        heap = max(_heaps(browser, page, steps=steps, word=word))
    return {"first_paint_s": round(median(paints), 3), "heap_mb": round(heap / MB, 1)}


def _first_paint_s(browser: Any, page: Path) -> float:
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(page.as_uri())
        wait(tab, f"{FIRST_CHART}.length > 0")
        return float(tab.evaluate(f"{FIRST_CHART}[0].startTime")) / 1000


def _heaps(browser: Any, page: Path, *, steps: int, word: str) -> list[float]:
    """Return the JavaScript heap in bytes after each view, and after a search and a walk through the steps."""
    hashes = ["#/curves", "#/time", "#/settings", f"#/samples?step=all&q={word}"]
    hashes += [f"#/samples?step={step}&row=0" for step in range(1, steps + 1, max(steps // 20, 1))]
    found = []
    with browser.new_context() as context:
        tab = context.new_page()
        for state in hashes:
            tab.goto(page.as_uri() + state)
            tab.wait_for_timeout(1000)
            session = context.new_cdp_session(tab)
            found.append(float(session.send("Runtime.getHeapUsage")["usedSize"]))
    return found


def wait(tab: Any, claim: str) -> None:
    """Wait until an expression is true; the page's policy forbids eval, which playwright's own function needs."""
    until = time.monotonic() + LIMIT_S
    while not tab.evaluate(claim):
        assert time.monotonic() < until, f"{claim} is not true after {LIMIT_S:.0f} s"
        time.sleep(0.02)
