"""The error boundary between a built-in grader and model output: no response makes a grader raise.

A sample whose function raises is masked, so a policy could avoid a penalty by writing text that breaks the grader. A
grader therefore has two halves. ``read_truth(ground_truth)`` reads the ground truth and raises ``ValueError``, because
an error there is the data's fault. ``grade(response, ground_truth)`` is wrapped in :func:`unreadable_is_wrong`, so that
an error there always counts against the response.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec

log = logging.getLogger(__name__)

Grade = dict[str, float | str]
P = ParamSpec("P")


def unreadable_is_wrong(grade: Callable[P, Grade]) -> Callable[P, Grade]:
    """Wrap the half of a grader that reads the response: an exception there scores 0.

    Exceeding the recursion limit is such an exception. ``MemoryError`` is re-raised: it comes from the memory limit and
    says nothing about the response.

    Returns:
        The function with the same parameters. If ``grade`` raises, it returns 0 for ``score`` and ``acc``, "" for
        ``pred``, and 1 for ``unreadable``, which the metric ``reward/unreadable`` counts. The first error of each type
        is logged with its traceback, because it is a bug in the grader even for an unusual response.
    """
    logged: set[type[Exception]] = set()

    @functools.wraps(grade)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Grade:
        try:
            return grade(*args, **kwargs)
        except MemoryError:
            raise
        except Exception as error:  # error boundary: a response may make a parser raise anything
            if type(error) not in logged:
                logged.add(type(error))
                log.warning("%s.%s could not read a response", grade.__module__, grade.__qualname__, exc_info=True)
            return {"score": 0.0, "acc": 0.0, "pred": "", "unreadable": 1.0}

    return guarded
