"""Time grading a maths answer, compared with math-verify: ``python -m benchmarks.grading [--pairs N]``.

Both grade the same pairs: gold answers in the forms of MATH, each paired with itself written differently and with
another gold answer, boxed. With ``--data FILE.jsonl``, they grade your own pairs, from the fields ``truth`` and
``response``. Prints one JSON object as its last line; math-verify's keys are null if it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks._machine import print_result
from tests.graders._gold import MATH_LIKE, rewrites
from verl_like_graders import math_answer

Grade = Callable[[str, str], bool]  # of ground truth and response


def gold_pairs() -> Iterator[tuple[str, str]]:
    """Yield each gold answer with a right response for each way of writing it, and with wrong ones."""
    for i, gold in enumerate(MATH_LIKE):
        for text in (gold, *rewrites(gold).values()):
            yield gold, text if "boxed" in text else f"\\boxed{{{text}}}"
        for step in (1, 7, 19):
            yield gold, f"\\boxed{{{MATH_LIKE[(i + step) % len(MATH_LIKE)]}}}"


def pairs(data: Path | None, count: int) -> list[tuple[str, str]]:
    if data is None:
        found = list(gold_pairs())
    else:
        rows = map(json.loads, data.read_text(encoding="utf-8").splitlines())
        found = [(str(row["truth"]), row["response"]) for row in rows]
    return random.Random(0).sample(found, min(count, len(found)))


def ours(ground_truth: str, response: str) -> bool:
    return math_answer.compute_score("math", response, ground_truth, {})["score"] == 1.0


def math_verifys() -> Grade | None:
    if importlib.util.find_spec("math_verify") is None:
        return None
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def grade(ground_truth: str, response: str) -> bool:
        gold = parse(f"\\boxed{{{ground_truth}}}")
        if not gold:
            raise ValueError("math-verify cannot parse the ground truth")
        return bool(verify(gold, parse(response)))

    return grade


def measure(grade: Grade, chosen: list[tuple[str, str]]) -> tuple[dict[str, float], list[bool | None]]:
    """Return times in ms, the fraction of ground truths refused, and the verdicts (None for a refused ground truth)."""
    times, verdicts = [], []
    for ground_truth, response in chosen:
        started = time.perf_counter()
        try:
            verdict: bool | None = grade(ground_truth, response)
        except ValueError:
            verdict = None
        times.append(1e3 * (time.perf_counter() - started))
        verdicts.append(verdict)
    return {
        "median_ms": float(np.median(times)),
        "p99_ms": float(np.quantile(times, 0.99)),
        "max_ms": max(times),
        "refused_frac": verdicts.count(None) / len(verdicts),
    }, verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5000, help="number of pairs to grade")
    parser.add_argument("--data", type=Path, default=None, help="a .jsonl file with the fields `truth` and `response`")
    args = parser.parse_args()
    chosen = pairs(args.data, args.pairs)
    figures, verdicts = measure(ours, chosen)
    found: dict[str, float | None] = {"pairs": len(chosen), **figures}
    math_verify, peer = math_verifys(), None
    peer_figures: dict[str, float] = {}
    if math_verify is not None:
        peer_figures, peer = measure(math_verify, chosen)
    found |= {f"math_verify_{name}": peer_figures.get(name) for name in figures}
    found["agreement"] = (
        None if peer is None else sum(a == b for a, b in zip(verdicts, peer, strict=True)) / len(chosen)
    )
    print_result(found)


if __name__ == "__main__":
    main()
