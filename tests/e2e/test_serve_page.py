"""The page of ``verl-like serve`` in headless Chromium: it loads under the server's headers and follows the run."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from benchmarks._made_run import write_run
from verl_like.report import refreshed
from verl_like.report.refreshed import RefreshedContent
from verl_like.report.server import ReportServer

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'verl-like[dev]'"
)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(CHROMIUM is None, reason="found no chromium in PATH: apt-get install chromium")
def test_the_page_shows_curves_and_samples_and_follows_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshed, "EVERY_S", 0.5)
    run, problems = tmp_path / "made", list[str]()
    write_run(run, steps=6, samples=16)
    with (
        ReportServer(RefreshedContent([run]), "token", port=0) as server,
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        tab = browser.new_page()
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.goto(server.url)
        tab.locator("canvas").first.wait_for()
        with (run / "metrics.jsonl").open("a") as rows:
            rows.write(json.dumps({"step": 7, "reward/score_mean": 0.5, "time/step_s": 3.0}) + "\n")
        tab.get_by_text("step 7").first.wait_for()
        tab.goto(f"{server.url}#/samples?step=3&row=5")
        tab.locator(".siblings").wait_for()
        browser.close()
        server.shutdown()
    assert problems == []
