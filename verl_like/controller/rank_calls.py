"""Calls of ranks' methods as plain data, which whoever holds the ranks' handles can make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from verl_like.controller import ray_calls
from verl_like.controller.blocks import Block
from verl_like.controller.call_trace import called
from verl_like.controller.ray_calls import Call
from verl_like.controller.remote_batch import BlockRef, RemoteRows


class RankCall(NamedTuple):
    """A call of one rank.

    Args:
        method: of :class:`verl_like.controller.worker.WorkerHost`, as the function itself.
        num_rows: of those that are handed over with the calls, one rank's behind the other's; the rank's own are the
            first argument of a method that takes rows.
        blocks: into which the table that the method returns is cut, and its second argument; they stay in the store.
    """

    rank: int
    method: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    num_rows: int = 0
    blocks: Sequence[Block] | None = None

    @property
    def title(self) -> str:
        """What is done: the role's own method, where the process only passes a call on to it."""
        if self.method.__name__ not in ("call", "beside", "map", "stream"):
            return self.method.__name__
        _, role, method, *_ = self.args
        return f"{role}.{method}"


class Ranks:
    """Some ranks of a group, by number.

    Args:
        group: the group's name, for messages.
        actors: their handles.
    """

    def __init__(self, group: str, actors: Mapping[int, Any]) -> None:
        self.group, self.actors = group, actors
        self.first = min(actors)
        name = self.who(self.first) if len(actors) == 1 else f"{group} ranks {self.first} to {max(actors)}"
        self.relay_name = f"the relay of {name}"

    def who(self, rank: int) -> str:
        """The rank's name in messages."""
        return f"{self.group} rank {rank}"

    def only(self, ranks: Iterable[int]) -> Ranks:
        """Some of them."""
        return Ranks(self.group, {rank: self.actors[rank] for rank in ranks})

    def begun(
        self, calls: Sequence[RankCall], rows: RemoteRows | None = None
    ) -> tuple[dict[BlockRef, str], list[BlockRef]]:
        """Make the calls; returns the reference of each answer with its rank's name, and those of all blocks."""
        made = self._made(calls, rows, [{"num_returns": 1 + len(call.blocks or ())} for call in calls])
        returned = [each if isinstance(each, list) else [each] for each in made]
        answers = {refs[0]: self.who(call.rank) for refs, call in zip(returned, calls, strict=True)}
        return answers, [ref for refs in returned for ref in refs[1:]]

    def begun_streams(self, calls: Sequence[RankCall], rows: RemoteRows) -> dict[Any, str]:
        """Make calls that return streams; each with its rank's name."""
        made = self._made(calls, rows, [{"num_returns": "streaming"}] * len(calls))
        return dict(zip(made, (self.who(call.rank) for call in calls), strict=True))

    def _made(
        self, calls: Sequence[RankCall], rows: RemoteRows | None, options: Sequence[Mapping[str, Any]]
    ) -> list[Any]:
        """What Ray returns at once."""
        made, first = [], 0
        for call, option in zip(calls, options, strict=True):
            own = () if rows is None else (rows.select(slice(first, first + call.num_rows)),)
            blocks = () if call.blocks is None else (call.blocks,)
            if ray_calls.are_calls_recorded():
                option = {**option, "name": called(self.who(call.rank), call.title)}
            method = getattr(self.actors[call.rank], call.method.__name__)
            made.append(Call(method, (*own, *blocks, *call.args), call.kwargs, option))
            first += call.num_rows
        return ray_calls.begun(made)
