"""``make bench-check``: run benchmarks and check their ratios against ``floors.toml``.

``python -m benchmarks._check [NAME ...]`` runs these benchmarks, or all that have floors. The exit status is 1 if a
ratio violates its floor or a benchmark fails. A ratio to a peer that is not installed (``ratio_vs_...`` is null) is
reported as such.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

FLOORS = Path(__file__).with_name("floors.toml")
LIMIT_S = 3600.0  # of one benchmark


def floors() -> dict[str, dict[str, dict[str, float]]]:
    """Map benchmark -> key -> ``least`` or ``most`` -> bound."""
    return tomllib.loads(FLOORS.read_text())


def verdict(key: str, found: float | None, bound: dict[str, float]) -> str:
    """Return "holds", "MISSED", or "no peer" if the peer that gives the figure is missing."""
    if found is None:
        return "no peer" if key.startswith("ratio_vs_") else "MISSED"
    holds = bound.get("least", found) <= found <= bound.get("most", found)
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
    bounds = floors()
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(bounds)}")
    names = parser.parse_args().names or list(bounds)
    if unknown := [name for name in names if name not in bounds]:
        parser.error(f"{', '.join(unknown)} have no floor in {FLOORS.name}; these have: {', '.join(bounds)}")
    verdicts = []
    for name in names:
        found = printed(name)
        if found is None:
            verdicts.append("MISSED")
            print(f"FAILED   {name}", flush=True)
            continue
        for key, bound in bounds[name].items():
            [(word, limit)] = bound.items()
            verdicts.append(verdict(key, found[key], bound))
            print(f"{verdicts[-1]:8} {name}.{key} is {found[key]}, at {word} {limit}", flush=True)
    return int("MISSED" in verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
