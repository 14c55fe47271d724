"""The error that explains a failed stage."""

from __future__ import annotations

import pytest

from verl_like.controller.errors import RunError, WorkerError, WorkerFailure, WorkerRefusal
from verl_like.controller.failures import Failed, Raised, explained

OTHER = Failed("worker rank 0", WorkerFailure("worker rank 0", "Role.method", "Traceback: a consequence", 1.0))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WorkerError("environments cannot continue."), WorkerError),
        (WorkerRefusal("environments cannot continue."), WorkerRefusal),
        (RunError("environments cannot continue."), WorkerRefusal),
    ],
)
def test_a_sentence_for_the_user_is_reported_alone_and_its_class_says_whether_a_restart_may_help(
    error: Raised, kind: type[Exception]
) -> None:
    found = explained([OTHER, Failed("worker rank 1", error)], "rollout")
    assert type(found) is kind and str(found) == "stage 'rollout' failed: environments cannot continue."
