"""Watch the free space of /dev/shm, where Ray's object store, vLLM and torch keep their blocks.

The kernel allocates these files page by page. If no page is left, a process that writes to one is ended by SIGBUS
without a message: usually Ray's raylet first, and the driver with it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path

FOLDER = Path("/dev/shm")
MIB = 2**20
LOW_MIB, LOW_FRAC = 256, 0.1  # below the smaller of the two, a warning is given
FULL_FRAC = 0.01
RECENT_S = 10.0  # an ended process frees its blocks and others take them: the minimum of this period counts
HELP = (
    "Remove files that other programs have left there (ls -l /dev/shm), lower cluster.object_store_memory_gib, or "
    "enlarge it: docker run --shm-size=..., or mount -o remount,size=... /dev/shm."
)


class SharedMemory:
    """Free space of a shared-memory file system at the last checks.

    Args:
        folder: mount point of the file system.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._recent: deque[tuple[float, int, int]] = deque()  # time, bytes left, total bytes
        self._is_low = False

    def check(self) -> str:
        """Read how much space is left.

        Returns:
            A warning if the space has become low; empty otherwise, and if it was already low at the last check.
        """
        now = time.monotonic()
        try:
            found = os.statvfs(self._folder)
        except OSError:  # a machine without /dev/shm
            return ""
        left, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        self._recent.append((now, left, total))
        while now - self._recent[0][0] > RECENT_S:
            self._recent.popleft()
        low = min(LOW_MIB * MIB, LOW_FRAC * total)
        was_low, self._is_low = self._is_low, left < (2 * low if self._is_low else low)
        if was_low or not self._is_low:
            return ""
        return (
            f"{self._folder} has {left // MIB:,} of {total // MIB:,} MiB left. A run ends when it is full: Ray's "
            f"object store, vLLM and torch keep their blocks there. {HELP}"
        )

    def clause(self) -> str:
        """Return a clause to append to a message about an ended process; empty if there was enough space recently."""
        self.check()
        least = min(((left, total) for _, left, total in self._recent), default=(1, 1))
        if least[0] >= FULL_FRAC * least[1]:
            return ""
        return (
            f"; {self._folder} was full ({least[0] // MIB:,} of {least[1] // MIB:,} MiB left), and the kernel then "
            f"ends processes that write there by SIGBUS. {HELP.removesuffix('.')}"
        )
