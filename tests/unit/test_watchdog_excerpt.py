"""The log of a silent process shows the threads that run our code."""

from __future__ import annotations

import pytest

from verl_like.watchdog.stack_dumps import ThreadStack
from verl_like.watchdog.verdict import excerpt


def stack(name: str, call: str) -> ThreadStack:
    return ThreadStack(name=name, holds_lock=False, calls=(call,), waits_for_peers=False)


@pytest.mark.parametrize("call", ["step (verl_like/training/ppo.py:9)", "post_json (verl_like_graders/http.py:9)"])
def test_only_threads_in_our_packages_are_shown(call: str) -> None:
    found = excerpt([stack("ours", call), stack("theirs", "select (selectors.py:9)")])
    assert found == f"  thread ours\n    {call}"


def test_all_threads_are_shown_where_none_is_in_our_packages() -> None:
    assert excerpt([stack("theirs", "select (selectors.py:9)")]) == "  thread theirs\n    select (selectors.py:9)"
