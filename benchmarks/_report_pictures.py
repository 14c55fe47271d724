"""Make the documentation's pictures of a report: ``python -m benchmarks._report_pictures RUN EPISODES``.

Needs Chromium and playwright. Reports are opened from their files, and ``docs/report_*.png`` are replaced: of RUN the
first screen in light and in dark colours and in a window of 400 pixels; of EPISODES, a run with tools, a sample.
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
HEIGHT = 900  # of the window, in pixels
# Name of the picture -> the address in the page, colours, width of the window in pixels.
OF_RUN = {"light": ("#/curves", "light", 1280), "dark": ("#/curves", "dark", 1280), "400px": ("#/curves", "light", 400)}
OF_EPISODES = {"samples": ("#/samples?sort=score", "light", 1280)}


def take(browser: Any, page: Path, name: str, *, address: str, scheme: str, width: int) -> None:
    """Make one picture."""
    path = DOCS / f"report_{name}.png"
    size = {"width": width, "height": HEIGHT}
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
    parser.add_argument("episodes", type=Path, help="folder of a run whose policy calls tools")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        for run, pictures in ((given.run, OF_RUN), (given.episodes, OF_EPISODES)):
            page = write_report([run], Path(folder) / f"{len(pictures)}.html")
            for name, (address, scheme, width) in pictures.items():
                take(browser, page, name, address=address, scheme=scheme, width=width)


if __name__ == "__main__":
    main()
