"""The tool of the recipe: run Python in a confined process.

The process has no network and starts no other processes, and it reads and writes only its own files. It is ended
after ``TIMEOUT_S``. This is not a security boundary against a determined attacker, because the kernel is shared.
"""

from __future__ import annotations

from verl_like_graders.programs.confinement import Limits
from verl_like_graders.programs.launcher import ForkServer, check_files_are_safe

TIMEOUT_S = 10.0
LIMITS = Limits(memory_mib=1024, cpu_s=12, file_bytes=2**20)
MAX_CHARS = 4000  # of what a program prints; environment.max_tool_tokens cuts further

check_files_are_safe(allow_without_landlock=False)


def python(code: str) -> str:
    """Run a Python program and return what it prints.

    Args:
        code: the whole program; variables of earlier programs are gone. Only the standard library can be imported.
    """
    # A server for each call: one that stays would keep the process of the episode from serving another episode.
    server = ForkServer()
    try:
        ending = server.start("program", limits=LIMITS, stdin="", code=code).end(grace_s=TIMEOUT_S)
    finally:
        server.close()
    printed = ending.output.decode(errors="replace")[:MAX_CHARS].strip()
    if ending.code is None:
        return f"{printed}\nThe program was ended after {TIMEOUT_S:g} s.".strip()
    if ending.code != 0:
        return f"{printed}\n{ending.errors.strip()[-500:] or f'The program ended with {ending.code}.'}".strip()
    return printed or "The program printed nothing. Use print."
