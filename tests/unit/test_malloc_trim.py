"""A worker's freed memory goes back to the system, and that takes next to no time."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from verl_like.controller.malloc_trim import PAUSE_PER_SECOND, MallocTrim

# Holes between blocks that stay: prints the resident MiB while they are free, and once they were given back.
HOLES = """
from verl_like.controller.malloc_trim import MallocTrim, malloc_trim
def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) / 256
freed = MallocTrim(malloc_trim(), min_pause_s=0.0)
blocks = [bytearray(100_000) for _ in range(2000)]
blocks = blocks[::10]
print(resident_mib())
freed.trim_if_due()
print(resident_mib())
"""


@pytest.mark.processes
def test_holes_between_blocks_that_stay_are_given_back() -> None:
    child = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, timeout=60, check=True)
    before, after = map(float, child.stdout.split())
    assert before - after > 130  # of the 172 MiB that were freed


def test_it_pauses_in_proportion_to_what_it_took() -> None:
    calls = []

    def give_back() -> None:
        calls.append(time.monotonic())
        time.sleep(0.001)

    freed = MallocTrim(give_back, min_pause_s=0.0)
    deadline = time.monotonic() + 0.9 * 0.001 * PAUSE_PER_SECOND
    while time.monotonic() < deadline:
        freed.trim_if_due()
        time.sleep(0.05)
    assert len(calls) == 1


def test_a_young_process_is_left_alone() -> None:
    calls: list[None] = []
    MallocTrim(lambda: calls.append(None), min_pause_s=60.0).trim_if_due()
    assert calls == []
