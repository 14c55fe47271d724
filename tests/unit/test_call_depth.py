"""From a typed facade to Ray's ``.remote`` a call passes few functions, and keeps its deadline and its name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import verl_like
from verl_like.config.schema import RolloutConfig
from verl_like.controller import ray_calls
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.controller.transport import Direct
from verl_like.controller.tree import Branch, Tree
from verl_like.controller.worker_group import WorkerGroup
from verl_like.workers import groups
from verl_like.workers.groups import ActorGroup, RolloutGroup

MOST = 5  # functions of ours, the facade's and those on the thread that calls Ray among them
PACKAGE = str(Path(verl_like.__file__).parent)


def ours(frame: FrameType | None) -> list[str]:
    """Return the functions of ours on a stack, outermost first."""
    found: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            found.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return found[::-1]


class Remote:
    """Stands in for a method of Ray's actors; notes the stack of each call, from the facade on."""

    def __init__(self, stacks: list[list[str]], handed_over: list[list[str]]) -> None:
        self._stacks, self._handed_over = stacks, handed_over
        self._num_returns: int | str = 1

    def options(self, *, num_returns: int | str = 1) -> Remote:
        chosen = Remote(self._stacks, self._handed_over)
        chosen._num_returns = num_returns
        return chosen

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        here = ours(sys._getframe())
        own = threading.current_thread() is threading.main_thread()
        self._stacks.append(here if own else [*self._handed_over[-1], *here])
        refs = [object() for _ in range(self._num_returns if isinstance(self._num_returns, int) else 1)]
        return refs if len(refs) > 1 else refs[0]


class Handle:
    def __init__(self, stacks: list[list[str]], handed_over: list[list[str]]) -> None:
        self._remote = Remote(stacks, handed_over)

    def __getattr__(self, name: str) -> Remote:
        return self._remote


class Traced:
    """Notes the stack of each ``.remote``: the caller's when it handed work over, and the thread's that calls Ray."""

    def __init__(self) -> None:
        self.stacks: list[list[str]] = []
        self.handed_over: list[list[str]] = []

    def profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """Note the stack where a function of ours puts something into a queue."""
        if event == "c_call" and getattr(arg, "__name__", "") == "put":
            self.handed_over.append(ours(frame))

    def of(self, call: Callable[[], object]) -> list[list[str]]:
        """Return the stack of each ``.remote`` that the call leads to."""
        self.stacks.clear()
        sys.setprofile(self.profile)
        try:
            call()
        finally:
            sys.setprofile(None)
        return self.stacks


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture(params=["direct", "tree"])
def group(request: pytest.FixtureRequest, traced: Traced, monkeypatch: pytest.MonkeyPatch) -> WorkerGroup:
    """A group of two ranks whose calls Ray never sees."""

    def arrived(refs: Sequence[Any], **limits: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
        empty: Any = [({}, []), ({}, [])]
        return [(ref, (empty, []) if request.param == "tree" else empty[0]) for ref in refs], []

    def next_items(streams: Sequence[Any], **limits: Any) -> list[tuple[Any, None]]:
        return [(stream, None) for stream in streams]

    def started(kind: Any, options: Mapping[str, Any], *args: Any, **kwargs: Any) -> Handle:
        return Handle(traced.stacks, traced.handed_over)

    monkeypatch.setattr(ray_calls, "started", started)
    monkeypatch.setattr(ray_calls, "arrived", arrived)
    monkeypatch.setattr(ray_calls, "next_items", next_items)
    group = WorkerGroup("worker", world_size=2, placement=None, env={}, timeout_s=5.0)
    if request.param == "tree":
        node = Branch("the aggregator of worker ranks 0 to 1", Handle(traced.stacks, traced.handed_over), [range(2)])
        group._transport = Tree([node])
    else:
        assert isinstance(group._transport, Direct)
    return group


def batch() -> RemoteBatch:
    return RemoteBatch({"uid": np.array(["a", "b"]), "group_id": np.arange(2)}, [])


def parts() -> Iterator[np.ndarray]:
    yield from (np.array([0]), np.array([1]))


def hold(stacks: Sequence[Sequence[str]], facade: str) -> None:
    assert stacks, "no call reached Ray"
    for stack in stacks:
        assert facade in stack[0], stack
        assert stack[-1].endswith("_work"), f"Ray is called on a separate thread: {stack}"
        assert len(stack) <= MOST, stack


def test_a_stage_of_the_step_reaches_ray_through_at_most_five_functions(group: WorkerGroup, traced: Traced) -> None:
    stacks = traced.of(lambda: ActorGroup(group).supervise(batch(), list(parts())))
    hold(stacks, "groups.py:ActorGroup.supervise")


def test_a_call_of_all_ranks_reaches_ray_through_at_most_five_functions(group: WorkerGroup, traced: Traced) -> None:
    stacks = traced.of(lambda: ActorGroup(group).save("folder"))
    hold(stacks, "groups.py:SavedGroup.save")


def test_a_rollout_reaches_ray_through_at_most_five_functions(
    group: WorkerGroup, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(group._transport, Tree):
        monkeypatch.setattr(ray_calls, "arrived", lambda refs, **limits: ([(ref, []) for ref in refs], []))
    rollout = RolloutGroup(group, RolloutConfig())
    sampling = groups.Sampling(temperature=1.0, top_p=1.0, top_k=-1, max_tokens=4)
    stacks = traced.of(
        lambda: list(rollout.generate(batch(), n=1, sampling=sampling, step=1, version=0, first_sample=0))
    )
    hold(stacks, "groups.py:RolloutGroup.generate")
