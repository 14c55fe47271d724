"""Results of machine checks: what was checked, what was found, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """``MISSING`` is required for a run; ``NOTE`` is a warning."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Package:
    """A system package by its name on Debian and Ubuntu, and on Fedora and its relatives."""

    apt: str
    dnf: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of a report. ``remedy`` is a command or a sentence, empty if there is nothing to fix.

    ``package`` is the system package that fixes the finding, if there is one.
    """

    name: str
    value: str
    status: Status = Status.OK
    remedy: str = ""
    package: Package | None = None


def install_line(packages: list[Package], *, manager: str = "apt-get") -> str:
    """Return the one command that installs ``packages``, each once and in the given sequence."""
    names = dict.fromkeys(package.dnf if manager == "dnf" else package.apt for package in packages)
    return f"{manager} install {' '.join(names)}"


def install_commands(findings: list[Finding]) -> list[str]:
    """Return the commands (apt-get and dnf) that install the missing system packages; empty if none is missing."""
    packages = [finding.package for finding in findings if finding.package and finding.status is not Status.OK]
    if not packages:
        return []
    return [
        f"{install_line(packages)}    (Debian, Ubuntu)",
        f"{install_line(packages, manager='dnf')}    (Fedora, RHEL)",
    ]


def render(findings: list[Finding]) -> str:
    """Return the findings as text, one per line, each remedy below its finding."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.status.value:<8} {finding.name:<{width}}  {finding.value}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
    return "".join(f"{line}\n" for line in lines)


def refuse(findings: list[Finding]) -> None:
    """Raise if a requirement is missing on this machine.

    Raises:
        ValueError: names every missing finding and its remedy.
    """
    missing = [finding for finding in findings if finding.status is Status.MISSING]
    if not missing:
        return
    parts = [
        f"{finding.name}: {finding.value}." + (f" Remedy: {finding.remedy}." if finding.remedy else "")
        for finding in missing
    ]
    commands = " or ".join(f"`{command}`" for command in install_commands(missing))
    if commands:
        parts.append(f"As root, this installs what is missing: {commands}.")
    raise ValueError(
        " ".join(["this machine does not meet the requirements.", *parts, "`verl-like doctor` checks everything."])
    )
