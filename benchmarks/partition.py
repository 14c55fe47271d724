"""Partition 65,536 rows into equal parts, compared with verl: ``python -m benchmarks.partition [--rows N]``.

Lengths are lognormal with a heavy tail. Both alternate, and figures are medians over the rounds. Prints one JSON object
as its last line; verl's keys are null if verl is not installed (``make peers``, then run with ``PYTHONPATH=.peers``) or
took longer than its deadline.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks._machine import print_result
from verl_like.ops.partition import Costs, imbalance, partition

PARTS = (8, 64, 1024)
GROWTH_PARTS = (8, 64, 256, 1024)
ROWS_PER_PART = 64  # for measuring the growth with the number of ranks
ROUNDS = 3
VERL_DEADLINE_S = 60


def sample_lengths(rows: int) -> Costs:
    """Draw lengths, [rows] int64, median 403 tokens, from 16 to 8192."""
    return np.clip(np.random.default_rng(0).lognormal(6, 1, rows), 16, 8192).astype(np.int64)


def ours(rows: int, parts: int, *, equal_counts: bool) -> dict[str, float]:
    """Measure our partition in this process."""
    lengths = sample_lengths(rows)
    started = time.perf_counter()
    found = partition(lengths, parts, equal_counts=equal_counts)
    return {"seconds": time.perf_counter() - started, "imbalance": imbalance(lengths, found)}


def verl_module() -> ModuleType:
    """Load only verl's partition file: its package imports dependencies that ``make peers`` does not install."""
    spec = importlib.util.find_spec("verl")
    assert spec is not None and spec.submodule_search_locations, "the parent looked for verl first"
    for name in ("verl", "verl.protocol", "verl.utils", "verl.utils.tensordict_utils", "verl.utils.device"):
        sys.modules[name] = ModuleType(name)
    unused: Any = sys.modules
    unused["verl.protocol"].DataProto = unused["verl.utils"].tensordict_utils = unused[
        "verl.utils.device"
    ].get_device_name = None
    file = importlib.util.spec_from_file_location(
        "verl.utils.seqlen_balancing", Path(spec.submodule_search_locations[0]) / "utils" / "seqlen_balancing.py"
    )
    assert file is not None and file.loader is not None, "a file has a loader"
    module = importlib.util.module_from_spec(file)
    file.loader.exec_module(module)
    return module


def verls(rows: int, parts: int, *, equal_counts: bool) -> dict[str, float]:
    """Measure verl's partition, which takes up to minutes."""
    lengths = sample_lengths(rows)
    as_list, split = lengths.tolist(), verl_module().get_seqlen_balanced_partitions
    started = time.perf_counter()
    found = split(as_list, parts, equal_size=equal_counts)
    return {
        "seconds": time.perf_counter() - started,
        "imbalance": imbalance(lengths, [np.array(part) for part in found]),
    }


def verls_within_deadline(rows: int, parts: int, *, equal_counts: bool) -> dict[str, float] | None:
    """Measure verl's partition in its own process; return None if verl is not installed or did not finish."""
    if importlib.util.find_spec("verl") is None:
        return None
    command = [sys.executable, "-m", "benchmarks.partition", "--rows", str(rows), "--verl-parts", str(parts)]
    command += ["--equal-counts"] if equal_counts else []
    try:
        done = subprocess.run(command, timeout=VERL_DEADLINE_S, check=True, stdout=subprocess.PIPE, text=True)
    except subprocess.TimeoutExpired:
        return None
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def in_turns(rows: int, parts: int, *, equal_counts: bool) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return our and verl's results of each round; verl's are empty if it is missing or was too slow once."""
    own: list[dict[str, float]] = []
    verl: list[dict[str, float]] = []
    for round_ in range(ROUNDS):
        own.append(ours(rows, parts, equal_counts=equal_counts))
        of_verl = verls_within_deadline(rows, parts, equal_counts=equal_counts) if len(verl) == round_ else None
        verl += [of_verl] if of_verl is not None else []
    return own, verl if len(verl) == ROUNDS else []


def growth_exponent() -> float:
    """Return the slope of log seconds over log ranks, at a constant number of rows per rank."""
    seconds = [
        median(ours(ROWS_PER_PART * parts, parts, equal_counts=False)["seconds"] for _ in range(ROUNDS))
        for parts in GROWTH_PARTS
    ]
    return float(np.polyfit(np.log(GROWTH_PARTS), np.log(seconds), 1)[0])


def measure(rows: int) -> dict[str, object]:
    report: dict[str, Any] = {"rows": rows, "parts": list(PARTS)}
    finished = True
    for suffix, equal_counts in (("", False), ("_equal_counts", True)):
        found = {parts: in_turns(rows, parts, equal_counts=equal_counts) for parts in PARTS}
        finished &= all(verl for _, verl in found.values())
        for key, digits in (("seconds", 4), ("imbalance", 7)):
            own, verl = ({str(parts): _median(of[side], key, digits) for parts, of in found.items()} for side in (0, 1))
            report |= {f"{key}{suffix}": own, f"verl{suffix}_{key}": verl}
        report[f"ratio_vs_verl{suffix}"] = {
            str(parts): round(
                median(b["seconds"] / a["seconds"] for a, b in zip(own_rounds, verl_rounds, strict=True)), 1
            )
            if verl_rounds
            else None
            for parts, (own_rounds, verl_rounds) in found.items()
        }
    report["growth_exponent"] = round(growth_exponent(), 3)
    if importlib.util.find_spec("verl") is None:
        report["verl"] = "not installed: make peers, then run with PYTHONPATH=.peers"
        report |= {key: None for key in report if key.startswith(("verl_", "ratio_"))}
    elif not finished:
        report["verl_deadline_s"] = VERL_DEADLINE_S
    return report


def _median(found: list[dict[str, float]], key: str, digits: int) -> float | None:
    return round(median(each[key] for each in found), digits) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--verl-parts", type=int, help="measure verl alone, in this process")
    parser.add_argument("--equal-counts", action="store_true", help="with --verl-parts: equal numbers of rows")
    options = parser.parse_args()
    if options.verl_parts is not None:
        print(json.dumps(verls(options.rows, options.verl_parts, equal_counts=options.equal_counts)))
    else:
        print_result(measure(options.rows))


if __name__ == "__main__":
    main()
