"""The border between a built-in grader and what a model wrote: no response makes a grader raise.

A sample whose function raises is masked, so that whoever writes what breaks the grader would go unpunished. A grader
therefore has two halves. ``read_truth(ground_truth)`` reads the truth and raises ``ValueError``, as that is the data's
fault. ``grade(response, truth)`` stands behind :func:`unreadable_is_wrong`, which need not guess whose fault it is.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec

log = logging.getLogger(__name__)

Verdict = dict[str, float | str]
P = ParamSpec("P")


def unreadable_is_wrong(grade: Callable[P, Verdict]) -> Callable[P, Verdict]:
    """Wrap the half of a grader that reads the response: an exception there scores 0.

    A recursion that goes too deep counts as one, too. ``MemoryError`` passes: it is the limit's doing and no verdict.

    Returns:
        The function with the same parameters. Where ``grade`` raises, it gives 0 for ``score`` and ``acc``, "" for
        ``pred``, and 1 for ``unreadable``, which the metric ``reward/unreadable`` counts. The first error of each kind
        is logged with its traceback, because it is a mistake of the grader, however strange the response.
    """
    logged: set[type[Exception]] = set()

    @functools.wraps(grade)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Verdict:
        try:
            return grade(*args, **kwargs)
        except MemoryError:
            raise
        except Exception as error:  # a border: a response may bring a parser to raise anything
            if type(error) not in logged:
                logged.add(type(error))
                log.warning("%s.%s could not read a response", grade.__module__, grade.__qualname__, exc_info=True)
            return {"score": 0.0, "acc": 0.0, "pred": "", "unreadable": 1.0}

    return guarded
