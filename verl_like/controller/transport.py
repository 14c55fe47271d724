"""Calls to a group's ranks: their content, and the transports that deliver them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from verl_like.controller import ray_calls
from verl_like.controller.blocks import Block
from verl_like.controller.call_trace import called
from verl_like.controller.dispatch import MethodCall
from verl_like.controller.ray_calls import Call
from verl_like.controller.remote_batch import BlockRef, RemoteRows
from verl_like.controller.streams import Pair, Pairing, items
from verl_like.controller.wait import Waits


class RankCall(NamedTuple):
    """A call to one rank as plain data; any process that holds the rank's handle can make it.

    Args:
        method: function of :class:`verl_like.controller.worker.WorkerHost`.
        num_rows: how many of the rows sent with the calls belong to this rank, in rank order. A method that takes rows
            receives them as its first argument.
    """

    rank: int
    method: Callable[..., Any]
    args: tuple[Any, ...] = ()
    num_rows: int = 0

    @property
    def title(self) -> str:
        """The role's method if the process only forwards the call, else the process's own method."""
        given = self.args[0] if self.args else None
        return given.title if isinstance(given, MethodCall) else self.method.__name__


RowSlices: TypeAlias = Callable[[slice], RemoteRows]  # slices of the rows of all calls, in rank order
Answers: TypeAlias = tuple[list[Any], list[BlockRef]]  # the answer of each rank, and all blocks in rank order


class Transport(Protocol):
    """Delivers calls to ranks.

    A transport returns the Ray calls that are needed and reads their results. Its caller makes and awaits them
    (:func:`verl_like.controller.ray_calls.begun`). Every method takes one call per rank, in rank order.
    """

    @property
    def late_s(self) -> float:
        """How many seconds longer than a call's own deadline the caller waits."""

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
        """Return the Ray calls that make these calls.

        Args:
            rows: rows for calls that take rows.
            cuts: for calls that return a table, the blocks of each leaf's table; the blocks stay in the store.
        """

    def answers(self, made: Sequence[Any], values: Sequence[Any]) -> Answers:
        """Read the immediate results of :meth:`calls` (``made``) and their answers (``values``)."""

    def report_calls(self, calls: Sequence[RankCall]) -> list[Call]:
        """Return the Ray calls that request reports; each answers with a list of reports."""

    def stream_calls(
        self, calls: Sequence[RankCall], rows: RowSlices, *, num_groups: int, stage: str, timeout_s: float
    ) -> list[Call]:
        """Return the Ray calls that stream ``num_groups`` groups in total."""

    def pairs(self, calls: Sequence[Call], made: Sequence[Any], waits: Waits) -> Iterator[list[Pair]]:
        """Yield the items of :meth:`stream_calls` as (facts, block) pairs, grouped by arrival."""


@dataclass(frozen=True, slots=True)
class Direct:
    """Calls each rank directly.

    Args:
        group: name of the group in messages.
        actors: actor handles by rank, ascending.
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
            found.append(Call(method, (*own, *call.args), options=option, who=self.who(call.rank)))
        return found
