"""``python -m benchmarks.gpu_check``: checks what only a machine with a GPU can show, in at most ten minutes.

Each check runs in a separate process, alone on the GPU. Its result is printed as soon as it ends: held, fell short,
skipped or failed. Prints one JSON object as its last line. The exit status is 1 if a check fell short or failed, and 2
if nothing could be checked. ``--device cpu`` is a dry run with tiny models, two checks in parallel.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from benchmarks.gpu_check.checks import CHECKS, Check
from benchmarks.gpu_check.play import play
from benchmarks.gpu_check.scene import Scene, temporary
from benchmarks.gpu_check.table import line, summary
from benchmarks.gpu_check.verdict import SKIPPED, Outcome
from verl_like.checks.gpus import num_gpus, smallest_gpu, torch_is_cpu_build

LIMIT_S = 590.0
MIN_CHECK_S = 5.0  # no check starts with less time left
# Disk space by ``is_small``: tiny models, or weights of three models in bfloat16 and a checkpoint of 0.5B.
DISK_GIB = {True: 1, False: 18}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    gpus = num_gpus()
    device = ("cuda" if gpus else "") if arguments.device == "auto" else arguments.device
    if not device or (device == "cuda" and not gpus):
        print("found no GPU, expected at least one. --device cpu is a dry run with tiny models.", file=sys.stderr)
        return 2
    if device == "cuda" and torch_is_cpu_build():
        print("found a torch that uses no GPU, expected one that does. make setup ACCELERATOR=cuda", file=sys.stderr)
        return 2
    chosen = [check for check in CHECKS if not arguments.only or check.name in arguments.only]
    for number in ENDING:
        signal.signal(number, _end)
    with temporary(device=device, num_gpus=gpus, is_small=arguments.small or device == "cpu") as scene:
        free_gib, needed_gib = shutil.disk_usage(scene.folder).free / 2**30, DISK_GIB[scene.is_small]
        if free_gib < needed_gib:
            where = scene.folder.parent
            print(f"found {free_gib:.1f} GiB free in {where}, expected {needed_gib}. Set TMPDIR.", file=sys.stderr)
            return 2
        return run(chosen, scene, limit_s=arguments.limit_s)


def run(checks: Sequence[Check], scene: Scene, *, limit_s: float) -> int:
    """Run the checks, print a line as each ends, and return the exit status."""
    started, stop = time.monotonic(), threading.Event()

    def one(check: Check) -> Outcome:
        left_s = limit_s - (time.monotonic() - started)
        if left_s < MIN_CHECK_S:
            why = f"the {limit_s:.0f} s of --limit-s are used up"
            outcome = Outcome(name=check.name, verdict=SKIPPED, seconds=0.0, why=why)
        else:
            outcome = play(check, scene, limit_s=min(check.limit_s, left_s), stop=stop)
        if not stop.is_set():
            print(line(outcome), flush=True)
        return outcome

    # On a GPU each check runs alone. On CPU a second check disturbs none of the measurements.
    with ThreadPoolExecutor(1 if scene.device == "cuda" else 2) as players:
        try:
            outcomes = list(players.map(one, checks))
        finally:
            stop.set()
    gpu = smallest_gpu() if scene.device == "cuda" else None
    report = summary(outcomes, device=gpu[0] if gpu else scene.device, seconds=time.monotonic() - started)
    print(json.dumps(report), flush=True)
    return 0 if all(outcome.is_well for outcome in outcomes) else 1


def _end(number: int, frame: FrameType | None) -> None:
    """Exit on Ctrl-C and similar signals, so that started processes are ended; later signals are ignored."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=__doc__)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--small", action="store_true", help="tiny models, as always on CPU")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[check.name for check in CHECKS], default=[])
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="time limit in seconds of all checks together")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
