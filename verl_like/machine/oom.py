"""Count processes that the kernel's OOM killer has ended."""

from __future__ import annotations

from pathlib import Path


def num_oom_kills() -> int:
    """Return the number of OOM kills on this machine since boot, including those in containers."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


class OomKills:
    """OOM kills since this object was made."""

    def __init__(self) -> None:
        self._before = num_oom_kills()

    def clause(self) -> str:
        """Return a clause to append to a message about an ended process; empty if there were no OOM kills."""
        count = num_oom_kills() - self._before
        if count <= 0:
            return ""
        return f"; meanwhile, the kernel's OOM killer has ended {count} process{'es' * (count > 1)}"
