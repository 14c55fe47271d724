"""Report what `make setup` lacks before it downloads anything: ``python3 -m verl_like.machine``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verl_like.machine.capacity import SPACE, space_needed
from verl_like.machine.findings import Finding, Status, install_commands, render
from verl_like.machine.probes import check_for_setup


def main() -> int:
    """Print what is missing or short and the command that fixes it; return 1 if something is missing."""
    parser = argparse.ArgumentParser(prog="python3 -m verl_like.machine", description=__doc__)
    parser.add_argument("--accelerator", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    arguments = parser.parse_args()
    found = check_for_setup(space_needed(SPACE[arguments.accelerator], arguments.venv))
    sys.stderr.write(problems(found))
    return int(any(finding.status is Status.MISSING for finding in found))


def problems(findings: list[Finding]) -> str:
    """Return the findings that are not ok, with their remedies; empty if there are none."""
    wrong = [finding for finding in findings if finding.status is not Status.OK]
    if not wrong:
        return ""
    lines = [render(wrong)]
    commands = install_commands(wrong)
    if commands:
        lines += ["\nAs root, this installs all that is missing:\n", *(f"    {command}\n" for command in commands)]
    if any(finding.status is Status.MISSING for finding in wrong):
        lines.append("\nNothing was downloaded or changed. Afterwards: make setup\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
