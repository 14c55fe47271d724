"""One thing that was looked at, what was found, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """``MISSING`` is needed; ``NOTE`` is worth knowing."""

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
    """One line of a report; ``remedy`` is a command or a sentence, empty where nothing needs mending.

    ``package`` is the system package that mends it, if one does.
    """

    name: str
    value: str
    status: Status = Status.OK
    remedy: str = ""
    package: Package | None = None


def install_line(packages: list[Package], *, manager: str = "apt-get") -> str:
    """The one command that installs ``packages``, each once and in their order."""
    names = dict.fromkeys(package.dnf if manager == "dnf" else package.apt for package in packages)
    return f"{manager} install {' '.join(names)}"


def mending(findings: list[Finding]) -> list[str]:
    """The command that installs every system package that ``findings`` lack, for apt-get and for dnf; empty if none."""
    packages = [finding.package for finding in findings if finding.package and finding.status is not Status.OK]
    if not packages:
        return []
    return [
        f"{install_line(packages)}    (Debian, Ubuntu)",
        f"{install_line(packages, manager='dnf')}    (Fedora, RHEL)",
    ]


def render(findings: list[Finding]) -> str:
    """Text of the findings, one a line, each remedy below its finding."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.status.value:<8} {finding.name:<{width}}  {finding.value}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
    return "".join(f"{line}\n" for line in lines)


def refuse(findings: list[Finding]) -> None:
    """End what cannot work on this machine.

    Raises:
        ValueError: names everything in ``findings`` that is missing, and what mends it.
    """
    missing = [finding for finding in findings if finding.status is Status.MISSING]
    if not missing:
        return
    parts = [
        f"{finding.name}: {finding.value}." + (f" Remedy: {finding.remedy}." if finding.remedy else "")
        for finding in missing
    ]
    commands = " or ".join(f"`{command}`" for command in mending(missing))
    if commands:
        parts.append(f"As root, this installs what is missing: {commands}.")
    raise ValueError(" ".join(["this machine cannot run this.", *parts, "`verl-like doctor` looks at everything."]))
