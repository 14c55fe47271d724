"""Make the documentation's pictures of a report: ``python -m benchmarks.report_pictures RUN``.

Needs Chromium and playwright. RUN's report is opened from its file, and ``docs/report_*.png`` are replaced: the first
screen in light and in dark colours, the samples, and a window of 400 pixels.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks._browser import launched, wait
from verl_like.report.command import write_report

DOCS = Path(__file__).parents[1] / "docs"
NUM_COLOURS = 64  # of a picture; texts and lines need no more, and it has a third of the bytes
# Name of the picture -> the address in the page, colours, width and height of the window in pixels.
PICTURES = {
    "light": ("#/curves", "light", 1280, 900),
    "dark": ("#/curves", "dark", 1280, 900),
    "samples": ("#/samples?shade=entropy", "light", 1280, 900),
    "400px": ("#/curves", "light", 400, 900),
}


def take(browser: Any, page: Path, name: str) -> None:
    """Make one picture."""
    address, scheme, width, height = PICTURES[name]
    path = DOCS / f"report_{name}.png"
    size = {"width": width, "height": height}
    with browser.new_context(viewport=size, color_scheme=scheme) as context:
        tab = context.new_page()
        tab.goto(page.as_uri() + address)
        wait(tab, "document.querySelector('canvas, .token') !== null")
        tab.wait_for_timeout(1000)  # the charts below the first one
        tab.screenshot(path=path)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(NUM_COLOURS).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run")
    run = parser.parse_args().run
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        page = write_report([run], Path(folder) / "report.html")
        for name in PICTURES:
            take(browser, page, name)


if __name__ == "__main__":
    main()
