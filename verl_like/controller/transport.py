"""Calls of a group's ranks: what is called, and by which way the calls reach the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from verl_like.controller import ray_calls
from verl_like.controller.blocks import Block
from verl_like.controller.call_trace import called
from verl_like.controller.ray_calls import Call
from verl_like.controller.remote_batch import BlockRef, RemoteRows
from verl_like.controller.streams import Pair, Pairing, items
from verl_like.controller.wait import Waits


class RankCall(NamedTuple):
    """A call of one rank as plain data, which any process that holds the rank's handle can make.

    Args:
        method: of :class:`verl_like.controller.worker.WorkerHost`, as the function itself.
        num_rows: of the rows that are sent with the calls, in the order of the ranks; the rank's own are the first
            argument of a method that takes rows.
    """

    rank: int
    method: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    num_rows: int = 0

    @property
    def title(self) -> str:
        """The role's own method, where the process only passes a call on to it; else the process's."""
        if self.method.__name__ not in ("call", "beside", "map", "stream"):
            return self.method.__name__
        _, role, method, *_ = self.args
        return f"{role}.{method}"


RowSlices: TypeAlias = Callable[[slice], RemoteRows]  # of the rows of all calls, in the order of the ranks
Answers: TypeAlias = tuple[list[Any], list[BlockRef]]  # of each rank; of all blocks, in the order of the ranks


class Transport(Protocol):
    """How calls reach ranks.

    A transport says which calls of Ray are needed and reads what they return. Its user makes and awaits them
    (:func:`verl_like.controller.ray_calls.begun`). Every method takes a call of each rank, in order.
    """

    @property
    def late_s(self) -> float:
        """How many seconds longer than a call's own deadline its user waits."""

    @property
    def leaves(self) -> Sequence[Sequence[int]]:
        """The ranks of each part of the group whose rows are cut into blocks together."""

    def calls(
        self,
        calls: Sequence[RankCall],
        rows: RowSlices | None = None,
        cuts: Sequence[Sequence[Block]] | None = None,
        *,
        stage: str,
        timeout_s: float,
    ) -> list[Call]:
        """Return what makes these calls.

        Args:
            rows: of calls that take rows.
            cuts: of calls that return a table: the blocks of each leaf's table; the blocks stay in the store.
        """

    def answers(self, made: Sequence[Any], values: Sequence[Any]) -> Answers:
        """Read what :meth:`calls` have returned at once (``made``) and what their answers are (``values``)."""

    def report_calls(self, calls: Sequence[RankCall]) -> list[Call]:
        """Return what makes calls for reports; each answers with a list of reports."""

    def stream_calls(
        self, calls: Sequence[RankCall], rows: RowSlices, *, num_groups: int, stage: str, timeout_s: float
    ) -> list[Call]:
        """Return what makes calls that stream ``num_groups`` groups in all."""

    def pairs(self, calls: Sequence[Call], made: Sequence[Any], waits: Waits) -> Iterator[list[Pair]]:
        """Yield what :meth:`stream_calls` stream: (facts, block) pairs, those of a moment together."""


@dataclass(frozen=True, slots=True)
class Direct:
    """Calls each rank by itself.

    Args:
        group: the group's name, for messages.
        actors: their handles by rank, ascending.
    """

    group: str
    actors: Mapping[int, Any]
    late_s: float = 0.0

    @property
    def leaves(self) -> list[range]:
        return [range(rank, rank + 1) for rank in self.actors]

    def who(self, rank: int) -> str:
        """Return the rank's name in messages."""
        return f"{self.group} rank {rank}"

    def calls(
        self,
        calls: Sequence[RankCall],
        rows: RowSlices | None = None,
        cuts: Sequence[Sequence[Block]] | None = None,
        *,
        stage: str = "",
        timeout_s: float = 0.0,
    ) -> list[Call]:
        options = [{"num_returns": 1 + len(blocks)} if blocks else {} for blocks in cuts or [[]] * len(calls)]
        arguments = [()] * len(calls) if cuts is None else [(blocks,) for blocks in cuts]
        return self._calls(calls, rows, arguments, options)

    def answers(self, made: Sequence[Any], values: Sequence[Any]) -> Answers:
        return list(values), [ref for refs in made if isinstance(refs, list) for ref in refs[1:]]

    def report_calls(self, calls: Sequence[RankCall]) -> list[Call]:
        return self.calls(calls)

    def stream_calls(
        self, calls: Sequence[RankCall], rows: RowSlices, *, num_groups: int, stage: str, timeout_s: float
    ) -> list[Call]:
        return self._calls(calls, rows, [()] * len(calls), [{"num_returns": "streaming"}] * len(calls))

    def pairs(self, calls: Sequence[Call], made: Sequence[Any], waits: Waits) -> Iterator[list[Pair]]:
        streams = {stream: call.who for stream, call in zip(made, calls, strict=True)}
        joined = Pairing(streams, waits.all)
        for ready in items(streams, waits):
            yield joined.pairs(ready)

    def _calls(
        self,
        calls: Sequence[RankCall],
        rows: RowSlices | None,
        arguments: Sequence[tuple[Any, ...]],
        options: Sequence[Mapping[str, Any]],
    ) -> list[Call]:
        found, first = [], 0
        for call, own, option in zip(calls, arguments, options, strict=True):
            if rows is not None:
                own = rows(slice(first, first + call.num_rows)), *own
                first += call.num_rows
            if ray_calls.are_calls_recorded():
                option = {**option, "name": called(self.who(call.rank), call.title)}
            method = getattr(self.actors[call.rank], call.method.__name__)
            found.append(Call(method, (*own, *call.args), call.kwargs, option, self.who(call.rank)))
        return found
