"""What is said when a run ends by an error that nobody foresaw: one line, and a file with all of it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from verl_like.disk import OF_DISKS, sentence
from verl_like.masking import masked_text, owners

MAX_CHARS = 400
REMEDIES = {  # by the name of the class or of one that it derives from
    "OutOfMemoryError": "Lower the batch (data.train_batch_size, rollout.n), actor.max_tokens_per_micro_batch, or the "
    "engine's share of memory, or take a larger machine.",
    "MemoryError": "Lower the batch (data.train_batch_size, rollout.n), or take a machine with more memory.",
    "RayError": "A process or node of the Ray cluster is gone; the same command goes on from the last checkpoint.",
    "ImportError": "A package cannot be loaded: `verl-like doctor` says what mends it.",
    "ConnectionError": "Look whether the other side can be reached; the same command goes on from the last checkpoint.",
}
REPORT = "That is a mistake of the program, or of code that it calls: report it with that file."


def told(error: BaseException, folder: Path) -> str:
    """One line: the innermost cause, what helps, and the file below ``folder`` that has the whole traceback."""
    cause = innermost(error)
    if isinstance(cause, OSError) and cause.errno in OF_DISKS:
        place = Path(cause.filename) if isinstance(cause.filename, str) else folder
        said = sentence(place, cause, "trainer.output_dir")
        return f"{said}{_written(error, folder)}"
    lines = str(cause).strip().splitlines()
    text = f"{type(cause).__name__}: {lines[0][:MAX_CHARS]}" if lines else type(cause).__name__
    names = [kind.__name__ for each in reversed(_chain(error)) for kind in type(each).__mro__]
    remedy = next((REMEDIES[name] for name in names if name in REMEDIES), REPORT)
    return f"{masked_text(text).removesuffix('.')}.{_written(error, folder)} {remedy}"


def innermost(error: BaseException) -> BaseException:
    """What went wrong first, below all that was raised because of it."""
    return _chain(error)[-1]


def _chain(error: BaseException) -> list[BaseException]:
    """The error, what it was raised because of, and so on."""
    found = [error]
    while (cause := next(_causes(found[-1]), None)) is not None and cause not in found:
        found.append(cause)
    return found


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What the error says it was raised for; torch's CheckpointException has one for each rank, Ray's errors one."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, dict):
        yield from (found[0] for found in failures.values() if isinstance(found, tuple))
    for found in (getattr(error, "cause", None), error.__cause__):
        if isinstance(found, BaseException):
            yield found
    if error.__context__ is not None and not error.__suppress_context__:
        yield error.__context__


def _written(error: BaseException, folder: Path) -> str:
    """A sentence about where the traceback lies; the traceback itself where it lies nowhere."""
    text = masked_text("".join(traceback.format_exception(error)))
    path = folder / "crashes" / f"{time.strftime('%Y%m%d-%H%M%S')}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="backslashreplace", opener=owners) as file:
            file.write(text)
    except OSError:
        return f" It could not be written down:\n{text}"
    return f" {path} has the whole traceback."
