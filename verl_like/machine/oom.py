"""Whether the kernel ends processes because memory runs out."""

from __future__ import annotations

from pathlib import Path


def num_oom_kills() -> int:
    """How many processes the kernel has ended on this machine because memory ran out, in containers too."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


class OomKills:
    """Those since this object was made."""

    def __init__(self) -> None:
        self._before = num_oom_kills()

    def said(self) -> str:
        """How a sentence about a process that has ended goes on; empty where there were none."""
        count = num_oom_kills() - self._before
        if count <= 0:
            return ""
        return f"; the kernel has ended {count} process{'es' * (count > 1)} for want of memory meanwhile"
