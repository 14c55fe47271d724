"""Measure the report page: ``python -m benchmarks.report``; needs Chromium and playwright for the page itself.

Builds the report of a made run of 200 steps with 256 samples each, opens it from its file in headless Chromium and
measures the time from navigation to the first painted chart and the JavaScript heap after every page was looked at.
Also builds the report of a run of 10,000 steps in a separate process. Prints one JSON object as its last line:

- ``first_paint_s``: seconds from navigation to the first painted chart, median of several; null without a browser;
- ``heap_mb``: JavaScript heap after curves, times, samples of several steps and a search over all texts;
- ``report_mb``: size of the page;
- ``build_s``, ``build_s_10k_steps``, ``build_gib_10k_steps``: seconds, and the memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._browser import figures
from benchmarks._machine import print_result
from benchmarks._made_run import write_run
from verl_like.report.command import write_report

STEPS, SAMPLES = 200, 256
MANY_STEPS, SAMPLES_OF_EACH = 10_000, 32  # the second is the default of trainer.num_samples_to_save
MB = 1e6


def built(folder: Path) -> dict[str, float]:
    """Build the report of a run in a process that did nothing before; return its seconds and GiB."""
    code = f"from benchmarks.report import timed_build; timed_build({str(folder)!r})"
    answer = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def timed_build(folder: str) -> None:
    """Build the report and print the seconds and GiB of this process."""
    begun = time.perf_counter()
    write_report([Path(folder)])
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": time.perf_counter() - begun, "gib": gib}))


def measure(folder: Path) -> dict[str, Any]:
    write_run(folder / "shown", steps=STEPS, samples=SAMPLES)
    short = built(folder / "shown")
    page = folder / "shown" / "report.html"
    write_run(folder / "long", steps=MANY_STEPS, samples=SAMPLES_OF_EACH)
    long = built(folder / "long")
    return {
        **figures(page, steps=STEPS, word="carrying"),
        "report_mb": round(page.stat().st_size / MB, 2),
        "build_s": round(short["seconds"], 2),
        "build_s_10k_steps": round(long["seconds"], 2),
        "build_gib_10k_steps": round(long["gib"], 2),
        "report_mb_10k_steps": round((folder / "long" / "report.html").stat().st_size / MB, 2),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_result(measure(Path(folder)))


if __name__ == "__main__":
    main()
