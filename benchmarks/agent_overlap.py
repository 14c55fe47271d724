"""Generate with environments, compared with their waits alone: ``python -m benchmarks.agent_overlap``.

64 episodes of 6 turns run on vLLM with environments in processes; each answer takes 0.3 s. The ideal is the time of the
same requests on the same engine with timers in place of environments (``chain_s``: the longest chain of waits and
generation), or without waits if that takes longer (``engine_s``). Both alternate with the episodes. Then eight agent
programs send chats of 32,000 tokens through the gateway (``loop_delay_ms``). Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, cast

from benchmarks import _agent_model, _agent_tasks
from benchmarks._machine import print_result
from benchmarks._teams import Job, teams
from verl_like.backends.base import Finished, Request, RolloutEngine, Sampling
from verl_like.backends.rollout import rollout_environment
from verl_like.context import current
from verl_like.environments.agent_episode import AgentEpisode
from verl_like.environments.episode import Budgets, EnvironmentEpisode, NextTurn
from verl_like.environments.gateway import Gateway
from verl_like.environments.model_responses import ServedModel
from verl_like.environments.processes import EnvironmentProcesses, ProcessSettings
from verl_like.telemetry.ledger import Ledger
from verl_like.workers.engine_ranks import EngineRanks
from verl_like.workers.environment_episodes import RunningEnvironments
from verl_like.workers.episode_thread import NewEpisode
from verl_like.workers.episodes import FinishedSample
from verl_like.workers.setup import WorkerSetup

ROUNDS = 3
EPISODES, TURNS, LATENCY_S = 64, 6, 0.3
LAYERS, PROMPT_TOKENS, TURN_TOKENS, ANSWER_TOKENS = 2, 768, 24, 60
LONG_CHATS, LONG_TOKENS, LONG_TURNS = 8, 32_000, 3
OWN_TOKENS = 2000  # of a long chat, at its end; the tokens before are those of all
LIMIT_S = 200.0


@dataclass(kw_only=True, slots=True)
class Times:
    """Seconds of a generation: in the engine's steps, and CPU seconds there and of the episodes' thread."""

    engine_s: float = 0.0
    engine_cpu_s: float = 0.0
    episodes_cpu_s: float = 0.0


class TimedEngine:
    """Measures the steps of an engine and records its requests."""

    def __init__(self, engine: RolloutEngine, times: Times) -> None:
        self._engine, self._times, self.version = engine, times, engine.version
        self.requests: list[Request] = []
        self.has_unfinished, self.num_free_slots, self.abort = (
            engine.has_unfinished,
            engine.num_free_slots,
            engine.abort,
        )

    def submit(self, requests: list[Request]) -> None:
        self.requests += requests
        self._engine.submit(requests)

    def step(self) -> list[Finished]:
        started, started_cpu = time.perf_counter(), time.thread_time()
        finished = self._engine.step()
        self._times.engine_s += time.perf_counter() - started
        self._times.engine_cpu_s += time.thread_time() - started_cpu
        return finished


def request(number: int, turn: NextTurn) -> Request:
    sampling = Sampling(max_tokens=turn.max_tokens)
    return Request(
        request_id=f"{number}:{turn.turn}",
        prompt_ids=turn.prompt_ids,
        seed=1000 * number + turn.turn,
        sampling=sampling,
    )


def thread_cpu_s() -> float:
    """Return the CPU seconds of the thread that runs the episodes."""
    [ident] = [thread.ident for thread in threading.enumerate() if thread.name.startswith("environments")]
    assert ident is not None, "the thread has not started"
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


def generated(episodes: RunningEnvironments, num: int, times: Times | None = None) -> list[FinishedSample]:
    """Run episodes to their ends, as the generator does."""
    found: list[FinishedSample] = []
    deadline = time.monotonic() + LIMIT_S
    episodes.begin(range(num))
    while episodes.has_unfinished():
        assert time.monotonic() < deadline, f"the episodes took longer than {LIMIT_S:.0f} s"
        episodes.num_free_slots()
        found += episodes.step()
    if times is not None:
        times.episodes_cpu_s = thread_cpu_s()
    episodes.abort()
    bad = [sample.facts for sample in found if sample.facts["environment_status"] != "ok"]
    assert not bad, bad[0]
    return found


def alone() -> EngineRanks:
    """Return the ranks of an engine that consists of this process."""
    from verl_like.config.schema import Config

    @dataclass
    class Setup:
        config: Config = field(default_factory=Config)
        rank: int = 0
        world_size: int = 1

    return EngineRanks(cast("WorkerSetup", Setup()))


@contextmanager
def processes(name: str) -> Iterator[EnvironmentProcesses]:
    """Yield processes that have loaded a part of ``_agent_tasks``."""
    found = EnvironmentProcesses(ProcessSettings(path=f"{_agent_tasks.__file__}:{name}"))
    found.start()
    try:
        found.load()
        yield found
    finally:
        found.close()


def start_s(started: EnvironmentProcesses) -> float:
    """Return the seconds until a new process has answered its first call."""
    begun = time.perf_counter()
    number = started.open()
    columns = {"num_turns": 1, "latency_s": 0.0, "answer": ""}
    row = {"messages": [], "columns": columns, "seed": 0}
    started.call(number, {"do": "reset", "episode": 1, "row": row}, limit_s=LIMIT_S)
    answers = started.poll(1.0)
    while not answers:
        answers = started.poll(1.0)
    assert answers[0].failure is None, answers[0].failure
    seconds = time.perf_counter() - begun
    started.end(number)
    return seconds


def replayed(engine: RolloutEngine, requests: list[Request], latency_s: float) -> tuple[float, float]:
    """Return the seconds of these turns with a timer in place of each environment, and those without a request."""
    idle_s = 0.0
    turns: dict[str, list[Request]] = {}
    for asked in requests:
        turns.setdefault(asked.request_id.partition(":")[0], []).append(asked)
    started = time.perf_counter()
    due = [(started, episode) for episode in turns]
    while due or engine.has_unfinished():
        ready = []
        while due and due[0][0] <= time.perf_counter():
            _, episode = heapq.heappop(due)
            if turns[episode]:
                ready.append(turns[episode].pop(0))
        if ready:
            engine.submit(ready)
        if engine.has_unfinished():
            for finished in engine.step():
                heapq.heappush(due, (time.perf_counter() + latency_s, finished.request_id.partition(":")[0]))
        elif due:
            left_s = max(due[0][0] - time.perf_counter(), 0.0)
            time.sleep(left_s)
            idle_s += left_s
    return time.perf_counter() - started, idle_s


@contextmanager
def overlapping(rank: int, folder: Path, max_tokens: int) -> Iterator[Job]:
    """Yield a round: episodes with environments, the same requests with timers, and without waits."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    passages = _agent_model.Passages(tokenizer)
    codec, budgets = (
        _agent_model.codec(tokenizer),
        Budgets(
            max_turns=TURNS,
            max_turn_tokens=2 * TURN_TOKENS,
            max_tool_tokens=4 * ANSWER_TOKENS,
            max_episode_tokens=max_tokens,
        ),
    )
    chats = [
        [{"role": "user", "content": passages.of(PROMPT_TOKENS, start=100 * number)}] for number in range(EPISODES)
    ]
    columns = {"num_turns": TURNS, "latency_s": LATENCY_S, "answer": passages.of(ANSWER_TOKENS, start=0)}
    with (
        processes("SlowTool") as own,
        _agent_model.engine(folder, max_tokens=max_tokens, num_seqs=EPISODES, cache_gib=1.0) as engine,
    ):
        ranks, of_start = alone(), start_s(own)  # no process is idle yet

        def timed(times: Times) -> tuple[list[FinishedSample], TimedEngine]:
            def new_episodes(row: int) -> list[NewEpisode]:
                inputs = {"messages": chats[row], "columns": columns, "seed": row}
                episode = EnvironmentEpisode(inputs, codec, budgets)
                return [NewEpisode(row=row, number=0, episode=episode, request=lambda turn: request(row, turn))]

            recording = TimedEngine(engine, times)
            episodes = RunningEnvironments(
                cast("RolloutEngine", recording),
                ranks,
                own,
                new_episodes,
                call_timeout_s=LIMIT_S,
                episode_timeout_s=LIMIT_S,
            )
            return generated(episodes, EPISODES, times), recording

        versions = iter(range(1000))

        def turn(_: Any) -> dict[str, float]:
            _agent_model.sync(engine, folder, next(versions))
            times = Times()
            started, started_cpu = time.perf_counter(), time.thread_time()
            samples, recording = timed(times)
            wall_s, main_cpu_s = time.perf_counter() - started, time.thread_time() - started_cpu
            num_turns = sum(int(sample.facts["num_turns"]) for sample in samples)
            assert num_turns == EPISODES * TURNS, f"{num_turns} turns"
            _agent_model.sync(engine, folder, next(versions))
            chain_s, idle_s = replayed(engine, recording.requests, LATENCY_S)
            _agent_model.sync(engine, folder, next(versions))
            engine_s, _ = replayed(engine, recording.requests, 0.0)
            later = [
                sum(float(sample.facts[f"later_{kind}_tokens"]) for sample in samples) for kind in ("cached", "context")
            ]
            overhead_s = main_cpu_s - times.engine_cpu_s + times.episodes_cpu_s
            return {
                "wall_over_ideal": wall_s / max(chain_s, engine_s),
                "wall_s": wall_s,
                "chain_s": chain_s,
                "engine_s": engine_s,
                "engine_idle_frac": 1 - times.engine_s / wall_s,
                "chain_idle_frac": idle_s / chain_s,
                "per_turn_overhead_ms": 1000 * overhead_s / num_turns,
                "per_turn_episode_ms": 1000 * times.episodes_cpu_s / num_turns,
                "prefix_cache_hit": later[0] / later[1],
                "context_tokens": later[1] / (num_turns - EPISODES),
                "start_s": of_start,
            }

        yield turn


@contextmanager
def serving(rank: int, folder: Path, max_tokens: int) -> Iterator[Job]:
    """Yield a job: agent programs with long chats; it returns the gateway's delay and the seconds."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    passages = _agent_model.Passages(tokenizer)
    codec, budgets = (
        _agent_model.codec(tokenizer),
        Budgets(
            max_turns=LONG_TURNS,
            max_turn_tokens=2 * TURN_TOKENS,
            max_tool_tokens=ANSWER_TOKENS,
            max_episode_tokens=max_tokens,
        ),
    )
    shared = passages.of(LONG_TOKENS - OWN_TOKENS, start=0)
    answer = passages.of(ANSWER_TOKENS, start=0)
    model = ServedModel(name="policy", max_context_tokens=max_tokens, num_tokens=len(tokenizer))
    with (
        processes("run") as own,
        _agent_model.engine(folder, max_tokens=max_tokens, num_seqs=LONG_CHATS, cache_gib=0.5) as engine,
    ):
        gateway = Gateway(model)
        gateway.start()
        ranks = alone()

        def new_episodes(row: int) -> list[NewEpisode]:
            end = passages.of(OWN_TOKENS, start=100 * (row + 1))
            inputs = {
                "messages": [{"role": "user", "content": f"{shared}\n{end}"}],
                "columns": {"num_turns": LONG_TURNS, "answer": answer},
                "seed": row,
            }
            episode = AgentEpisode(inputs, codec, budgets, address=gateway.open({"temperature": 1.0}), model=model)
            return [NewEpisode(row=row, number=0, episode=episode, request=lambda turn: request(row, turn))]

        def chats(_: Any) -> dict[str, float]:
            _agent_model.sync(engine, folder, 0)
            episodes = RunningEnvironments(
                engine, ranks, own, new_episodes, call_timeout_s=LIMIT_S, episode_timeout_s=LIMIT_S, gateway=gateway
            )
            samples = generated(episodes, LONG_CHATS)
            assert all(sample.facts["num_turns"] == LONG_TURNS for sample in samples), samples[0].facts
            num_tokens = [len(each.responses[0].prompt_ids or []) for each in samples]
            _, peaks = current(Ledger).take_numbers()
            return {"loop_delay_ms": peaks["env/loop_delay_ms"], "long_chat_tokens": min(num_tokens)}

        yield chats
        gateway.close()


def measured(folder: Path, name: str, maker: Callable[..., Any], max_tokens: int, rounds: int) -> dict[str, float]:
    """Return the median of each figure over the rounds, after a round that warms up if there are several."""
    with teams({name: (1, maker, (folder, max_tokens))}) as found:
        figures = []
        for _ in range(rounds + (rounds > 1)):
            seconds, [answer] = found[name].done()
            figures.append({**answer, f"{name}_s": seconds})
    figures = figures[rounds > 1 :]
    return {key: round(median(each[key] for each in figures), 4) for key in figures[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", default="", help="folder of a tokenizer with a chat template; trained if empty")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=["overlapping", "serving"], help="measure only this part")
    arguments = parser.parse_args()
    os.environ |= {**rollout_environment("vllm", device="cpu"), "VLLM_LOGGING_LEVEL": "ERROR"}
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
    }
    parts = {
        "overlapping": (
            overlapping,
            LAYERS,
            PROMPT_TOKENS + TURNS * (TURN_TOKENS + 2 * ANSWER_TOKENS),
            arguments.rounds,
        ),
        "serving": (serving, 1, LONG_TOKENS + 2000, 1),
    }
    tokenizer = _agent_model.tokenizer(arguments.tokenizer)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (maker, layers, max_tokens, rounds) in parts.items():
            if arguments.only not in (None, name):
                continue
            path = Path(folder) / name
            _agent_model.write_model(path, tokenizer, turn_tokens=TURN_TOKENS, layers=layers, max_tokens=max_tokens)
            figures |= measured(path, name, maker, max_tokens, rounds)
            print(json.dumps(figures), flush=True)
    print_result(figures)


if __name__ == "__main__":
    main()
