"""``make bench-check``: run benchmarks and check their ratios against ``floors.toml``.

``python -m benchmarks._check [NAME ...]`` runs these benchmarks, or all that have floors. The exit status is 1 if a
ratio violates its floor or a benchmark fails. A ratio to a peer that is not installed (``ratio_vs_...`` is null) is
reported as such. A floor of this processor's family replaces the floor for any processor; each line says which it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_like.machine.processor import processor

FLOORS = Path(__file__).with_name("floors.toml")
LIMIT_S = 3600.0  # of one benchmark


ANY = "any processor"


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """A bound of a ratio.

    Args:
        word: "least" or "most".
        family: of the processors for which it holds, or ``ANY``.
    """

    word: str
    limit: float
    family: str = ANY

    def __str__(self) -> str:
        return f"at {self.word} {self.limit} ({self.family})"


def floors(family: str) -> dict[str, dict[str, Floor]]:
    """Map benchmark -> key -> the floor for processors of this family."""
    found: dict[str, dict[str, Floor]] = {}
    for name, table in tomllib.loads(FLOORS.read_text()).items():
        families = {key for key, value in table.items() if not value.keys() <= {"least", "most"}}
        of_any = {key: bound for key, bound in table.items() if key not in families}
        found[name] = {}
        for of, bounds in ((ANY, of_any), (family, table.get(family, {}))):
            for key, bound in bounds.items():
                [(word, limit)] = bound.items()
                found[name][key] = Floor(word=word, limit=limit, family=of)
    return found


def verdict(key: str, found: float | None, floor: Floor) -> str:
    """Return "holds", "MISSED", or "no peer" if the peer that gives the figure is missing."""
    if found is None:
        return "no peer" if key.startswith("ratio_vs_") else "MISSED"
    holds = found >= floor.limit if floor.word == "least" else found <= floor.limit
    return "holds" if holds else "MISSED"


def printed(name: str) -> dict[str, Any] | None:
    """Return the JSON object that a benchmark prints last, or None if it fails."""
    ended = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}"], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False
    )
    if ended.returncode:
        return None
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    bounds = floors(processor().family)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(bounds)}")
    names = parser.parse_args().names or list(bounds)
    if unknown := [name for name in names if name not in bounds]:
        parser.error(f"{', '.join(unknown)} have no floor in {FLOORS.name}; these have: {', '.join(bounds)}")
    print(f"processor: {processor()}", flush=True)
    verdicts = []
    for name in names:
        found = printed(name)
        if found is None:
            verdicts.append("MISSED")
            print(f"FAILED   {name}", flush=True)
            continue
        for key, floor in bounds[name].items():
            verdicts.append(verdict(key, found[key], floor))
            print(f"{verdicts[-1]:8} {name}.{key} is {found[key]}, {floor}", flush=True)
    return int("MISSED" in verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
