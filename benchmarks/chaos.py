"""Run the fault matrix on the real stack: ``python -m benchmarks.chaos``, or ``make chaos``.

Every case of ``tests/chaos/cases.py`` is a separate run with one fault: from inside, by a file that Python loads in its
processes, or from outside, by a signal or on the disk. A soak follows: an undisturbed run of many steps
(``benchmarks.memory``), whose memory must stay level. Prints JSON; ``--page FILE`` also writes the table.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import memory
from benchmarks._machine import print_result
from tests.chaos.cases import CASES, Case
from tests.chaos.page import markdown
from tests.chaos.play import Outcome, play, undisturbed
from tests.chaos.scene import make_data

OUTCOME = "outcome.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names match this regular expression")
    parser.add_argument("--soak-steps", type=int, default=200, help="number of steps of the soak; 0 to skip it")
    parser.add_argument("--jobs", type=int, default=2, help="number of cases that run in parallel")
    parser.add_argument("--page", type=Path, help="write the table to this file")
    parser.add_argument(
        "--folder", type=Path, help="keep runs and outcomes here, also those of earlier calls (default: temporary)"
    )
    arguments = parser.parse_args()
    # Under nohup, runs would inherit an ignored SIGHUP. With a handler here, it has its default action in them.
    signal.signal(signal.SIGHUP, lambda signum, frame: None)
    chosen = [case for case in CASES if re.search(arguments.only, case.name)]
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        folder = arguments.folder or Path(temporary)
        run_matrix(chosen, folder, jobs=arguments.jobs)
        outcomes = recorded(folder)
        if arguments.page:
            arguments.page.write_text(markdown(outcomes))
        found = figures(outcomes)
        if arguments.soak_steps:
            found = with_soak(found, memory.measure(folder / "soak", arguments.soak_steps, {}))
    print_result(found)


def run_matrix(cases: Sequence[Case], folder: Path, *, jobs: int) -> None:
    """Run the cases, ``jobs`` at once; print and record each as it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    data = make_data(folder / "data")
    references = {name: undisturbed(folder / name, data, case) for name, case in _by_reference(cases).items()}

    def one(case: Case) -> None:
        outcome = play(case, data=data, out=folder / case.name, reference=references[_reference(case)])
        verdict = f"verdict after {outcome.verdict_s:.1f} s" if outcome.verdict_s is not None else "nothing to say"
        print(f"{'FAILED' if outcome.problems else 'ok':6} {case.name}: {verdict}, {outcome.seconds:.0f} s", flush=True)
        for problem in outcome.problems:
            print(f"       {problem}", flush=True)
        words = {name: value for name, value in vars(outcome).items() if name != "case"}
        (folder / case.name / OUTCOME).write_text(json.dumps(words, indent=1))

    with ThreadPoolExecutor(jobs) as players:
        list(players.map(one, cases))


def _reference(case: Case) -> str:
    """Return the folder of the undisturbed run that a case is compared with."""
    if not case.has_episodes:
        return "undisturbed"
    return "undisturbed-agent" if case.has_agent else "undisturbed-episodes"


def _by_reference(cases: Sequence[Case]) -> dict[str, Case]:
    return {_reference(case): case for case in cases}


def recorded(folder: Path) -> list[Outcome]:
    """Return the outcomes of all cases that ran in a folder, in the order of the table."""
    files = [(case, folder / case.name / OUTCOME) for case in CASES]
    return [Outcome(case, **json.loads(file.read_text())) for case, file in files if file.exists()]


def figures(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return the figures of the matrix."""
    return {
        "cases": len(outcomes),
        "passed": sum(not outcome.problems for outcome in outcomes),
        "worst_verdict_s": max((o.verdict_s for o in outcomes if o.verdict_s is not None), default=0.0),
        "resume_bit_equal": all(outcome.is_equal is not False for outcome in outcomes),
        "shm_clean": not any(outcome.num_leaked for outcome in outcomes),
        "processes_left": sum(outcome.num_left for outcome in outcomes),
    }


def with_soak(matrix: Mapping[str, Any], soak: Mapping[str, Any]) -> dict[str, object]:
    """Return the figures of matrix and soak together."""
    return {
        **matrix,
        "soak_steps": soak["steps"],
        "rss_slope_mb_per_step": soak["rss_slope_mb_per_step"],
        "worst_process": soak["worst_process"],
        "store_level_flat": soak["store_level_flat"],
        "shm_clean": matrix["shm_clean"] and soak["shm_clean"],
        "processes_left": matrix["processes_left"] + soak["processes_left"],
    }


if __name__ == "__main__":
    main()
