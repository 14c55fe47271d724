"""Report an unforeseen error that ends a run: one line, and a file with the traceback."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from verl_like.disk import OF_DISKS, sentence
from verl_like.masking import masked_text, owners

MAX_CHARS = 400
REMEDIES = {  # keyed by the name of the error's class or a base class
    "OutOfMemoryError": "Lower the batch (data.train_batch_size, rollout.n), actor.max_tokens_per_micro_batch, or the "
    "engine's share of memory, or take a larger machine.",
    "MemoryError": "Lower the batch (data.train_batch_size, rollout.n), or take a machine with more memory.",
    "RayError": "A process or node of the Ray cluster is lost; the same command continues from the last checkpoint.",
    "ImportError": "A package cannot be loaded; `verl-like doctor` prints the remedy.",
    "ConnectionError": "Check whether the server can be reached; the same command continues from the last checkpoint.",
}
REPORT = "This is a bug in verl-like or in code that it calls; please report it with that file."


def crash_report(error: BaseException, folder: Path) -> str:
    """Return one line: the innermost cause, a remedy, and the file below ``folder`` with the traceback."""
    cause = innermost(error)
    if isinstance(cause, OSError) and cause.errno in OF_DISKS:
        path = Path(cause.filename) if isinstance(cause.filename, str) else folder
        return f"{sentence(path, cause, 'trainer.output_dir')}{_written(error, folder)}"
    lines = str(cause).strip().splitlines()
    text = f"{type(cause).__name__}: {lines[0][:MAX_CHARS]}" if lines else type(cause).__name__
    names = [kind.__name__ for each in reversed(_chain(error)) for kind in type(each).__mro__]
    remedy = next((REMEDIES[name] for name in names if name in REMEDIES), REPORT)
    return f"{masked_text(text).removesuffix('.')}.{_written(error, folder)} {remedy}"


def innermost(error: BaseException) -> BaseException:
    """Return the original error, from which all others followed."""
    return _chain(error)[-1]


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and its chain of causes."""
    found = [error]
    while (cause := next(_causes(found[-1]), None)) is not None and cause not in found:
        found.append(cause)
    return found


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes of an error; torch's CheckpointException has one for each rank, Ray's errors have one."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, dict):
        yield from (found[0] for found in failures.values() if isinstance(found, tuple))
    for found in (getattr(error, "cause", None), error.__cause__):
        if isinstance(found, BaseException):
            yield found
    if error.__context__ is not None and not error.__suppress_context__:
        yield error.__context__


def _written(error: BaseException, folder: Path) -> str:
    """Write the traceback; return a sentence with its location, or with the traceback if it cannot be written."""
    text = masked_text("".join(traceback.format_exception(error)))
    path = folder / "crashes" / f"{time.strftime('%Y%m%d-%H%M%S')}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="backslashreplace", opener=owners) as file:
            file.write(text)
    except OSError:
        return f" The traceback could not be written to a file:\n{text}"
    return f" {path} contains the traceback."
