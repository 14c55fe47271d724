"""Contenders of a benchmark, each in its own processes, that alternate: while one runs, the others wait."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

TIMEOUT_S = 300.0

Job = Callable[[Any], Any]
Maker = Callable[..., AbstractContextManager[Job]]  # takes a rank and arguments; yields a function that takes an order


@dataclass(frozen=True)
class Team:
    """The processes of one contender."""

    pipes: list[Connection]

    def seconds(self, order: Any = None) -> float:
        """Return the seconds until the slowest process has carried out the order."""
        return self.done(order)[0]

    def done(self, order: Any = None) -> tuple[float, list[Any]]:
        """Return the seconds, and the answer of each process."""
        for pipe in self.pipes:
            pipe.send(("do", order))
        answers = [self._answer(pipe) for pipe in self.pipes]
        return max(seconds for seconds, _ in answers), [answer for _, answer in answers]

    def _answer(self, pipe: Connection) -> tuple[float, Any]:
        assert pipe.poll(TIMEOUT_S), f"no answer in {TIMEOUT_S:.0f} s"
        seconds, answer = pipe.recv()
        return float(seconds), answer

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.send(("end", None))


@contextmanager
def teams(members: Mapping[str, tuple[int, Maker, tuple[Any, ...]]]) -> Iterator[dict[str, Team]]:
    """Start the teams one after the other, and yield them ready to run.

    Args:
        members: name -> number of processes, the maker of each job, and its arguments after the rank.
    """
    context = multiprocessing.get_context("spawn")
    found: dict[str, Team] = {}
    processes = []
    try:
        for name, (ranks, maker, arguments) in members.items():
            pipes = []
            for rank in range(ranks):
                own_end, member_end = context.Pipe()
                processes.append(context.Process(target=_member, args=(member_end, maker, rank, arguments)))
                processes[-1].start()
                member_end.close()  # so that a process that ends without an answer is noticed at once
                pipes.append(own_end)
            found[name] = Team(pipes)
            for pipe in pipes:
                assert pipe.poll(TIMEOUT_S), f"{name} was not ready in {TIMEOUT_S:.0f} s"
                pipe.recv()
        yield found
        for team in found.values():
            team.end()
        for process in processes:
            process.join(TIMEOUT_S)
    finally:
        for process in processes:
            process.terminate()


def _member(pipe: Connection, maker: Maker, rank: int, arguments: tuple[Any, ...]) -> None:
    with maker(rank, *arguments) as job:
        pipe.send("ready")
        while (order := pipe.recv())[0] == "do":
            started = time.perf_counter()
            answer = job(order[1])
            pipe.send((time.perf_counter() - started, answer))


def median_ratio(rounds: list[dict[str, float]], above: str, below: str) -> float:
    """Return the median of the rounds' own ratios: a disturbance in a round affects both."""
    return median(turn[above] / turn[below] for turn in rounds)
