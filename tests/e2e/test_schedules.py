"""Engines in separate workers, and the schedules that use them, on the real stack."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests._tiers import slow_but
from tests.e2e.conftest import Run, arguments, train
from verl_like.backends.base import Sampling
from verl_like.config.compose import compose
from verl_like.data.templates import load_tokenizer
from verl_like.runs.folder import RunFolder
from verl_like.telemetry.metrics import repeats
from verl_like.training.build import stack
from verl_like.training.generation import put_prompts
from verl_like.training.tasks import train_prompts
from verl_like.workers.engine_members import EngineMembers
from verl_like.workers.engine_pool import EnginePool

pytestmark = pytest.mark.usefixtures("ray_cluster")

ALL = "cluster.workers_per_node=0"  # the sum of the pools
PLACED = ("cluster.placement={trainer: 1, rollout: 1}", ALL, "rollout.sync_checksum=true")
STALE = ("actor.use_rollout_log_probs=true",)
STEPS, TEN = 4, "trainer.total_training_steps=10"


def run(data: Path, out: Path, *overrides: str) -> Run:
    return train(data, out, f"trainer.total_training_steps={STEPS}", "trainer.num_capsules=0", *overrides)


def numbers(found: Run) -> list[dict[str, Any]]:
    """Return the metrics of each step that a repetition reproduces, without those that depend on the placement."""
    others = ("sync/", "rollout/staleness", "rollout/mixed_versions")
    return [
        {name: value for name, value in metrics.items() if repeats(name) and not name.startswith(others)}
        for metrics in found.metrics.values()
    ]


@pytest.fixture(scope="module")
def placed(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Run:
    """Return the synchronous run with one trainer and one engine."""
    return run(arithmetic, tmp_path_factory.mktemp("placed"), *PLACED, TEN)


def test_an_engine_in_a_separate_worker_gives_the_numbers_of_a_shared_one(
    placed: Run, arithmetic: Path, tmp_path: Path
) -> None:
    alone = ("cluster.workers_per_node=1", "cluster.threads_per_worker=1")  # MKL rounds by the number of threads
    shared = run(arithmetic, tmp_path, *alone, "rollout.sync_checksum=true", TEN)
    assert numbers(placed) == numbers(shared)
    assert [metrics["sync/checksum"] for metrics in placed.metrics.values()] == [
        metrics["sync/checksum"] for metrics in shared.metrics.values()
    ]
    assert all(metrics["rollout/log_prob_diff_max"] < 1e-4 for metrics in placed.metrics.values())


@pytest.mark.parametrize("pool", slow_but((), (("critic", ("critic",)), ("ref", ("ref",))), nightly={"critic"}))
def test_a_model_in_separate_workers_gives_the_numbers_of_a_shared_one(
    pool: str, arithmetic: Path, tmp_path: Path
) -> None:
    words = (
        "algorithm=ppo",
        "algorithm.kl_coef=0.01",
        "critic.epochs=2",
        "trainer.save_freq=2",
        "rollout=hf",
        "cluster.threads_per_worker=1",
    )
    shared = run(arithmetic, tmp_path / "shared", *words, "cluster.workers_per_node=1")
    separate = run(arithmetic, tmp_path / "separate", *words, f"cluster.placement={{trainer: 1, {pool}: 1}}", ALL)
    assert numbers(separate) == numbers(shared) and len(numbers(shared)) == STEPS
    checkpoint = separate.folder / "checkpoints/step_2"
    resumed = run(
        arithmetic, tmp_path / "resumed", *words, f"trainer.resume={checkpoint}", "cluster.workers_per_node=1"
    )
    assert numbers(resumed) == numbers(shared)[2:]


def test_without_staleness_the_asynchronous_schedule_is_the_synchronous_one(
    placed: Run, arithmetic: Path, tmp_path: Path
) -> None:
    found = run(arithmetic, tmp_path, *PLACED, TEN, "trainer.schedule=async", "trainer.max_staleness=0")
    assert numbers(found) == numbers(placed) and len(numbers(found)) == 10


@pytest.mark.parametrize(
    ("schedule", "on_sync"),
    slow_but(
        {"async keep"},
        [
            (f"{schedule} {on_sync}", (schedule, on_sync))
            for schedule in ("one_step_off", "async")
            for on_sync in ("keep", "recompute", "wait")
        ],
    ),
)
def test_responses_are_at_most_as_old_as_allowed(schedule: str, on_sync: str, arithmetic: Path, tmp_path: Path) -> None:
    found = run(
        arithmetic,
        tmp_path,
        *PLACED,
        f"trainer.schedule={schedule}",
        f"rollout.on_sync={on_sync}",
        *STALE,
        f"data.val_files=[{arithmetic}/val.parquet]",
        "trainer.test_freq=2",
    )
    assert [metrics["rollout/staleness_max"] for metrics in found.metrics.values()] == [0, 1, 1, 1]
    if on_sync == "wait":  # slime issue 2092: responses of several versions, although the option forbade them
        assert not any(metrics["rollout/mixed_versions_frac"] for metrics in found.metrics.values())
    for line in sample_lines(found, step=4):
        versions = set(line["tokens"]["weight_version"])
        assert (min(versions), max(versions)) == (line["weight_version_min"], line["weight_version_max"])
    assert "val/mean@1" in found.metrics[2] and "val/mean@1" in found.metrics[4]
    prompts = json.loads((found.folder / "summary.json").read_text())["prompts"]
    assert prompts == {"drawn": 32, "trained": 32, "filtered": 0, "failed": 0, "in_flight": 0}


def sample_lines(found: Run, *, step: int) -> list[dict[str, Any]]:
    """Return the lines of a step's samples file."""
    lines = (found.folder / f"samples/step_{step}.jsonl").read_text().splitlines()
    assert lines
    return [json.loads(line) for line in lines]


@pytest.fixture
def engine_pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the processes of the engines that meet the trainer, in the order in which they first do."""
    found: list[int] = []
    meet = EngineMembers.meet

    def recording(members: EngineMembers) -> bool:
        pids = [of_rank["pid"] for engine in members.present for of_rank in engine.group.status(timeout_s=20)]
        found.extend(pid for pid in pids if pid not in found)
        return meet(members)

    monkeypatch.setattr(EngineMembers, "meet", recording)
    return found


@pytest.mark.slow
def test_a_killed_engine_is_replaced_and_its_prompts_are_generated_again(
    arithmetic: Path, tmp_path: Path, engine_pids: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    metrics = tmp_path / "default/metrics.jsonl"

    def kill_after_two_steps() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if metrics.exists() and len(metrics.read_text().splitlines()) >= 2:
                os.kill(engine_pids[0], signal.SIGKILL)
                return
            time.sleep(0.05)

    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(kill_after_two_steps)
        found = train(
            arithmetic,
            tmp_path,
            *PLACED,
            "trainer.schedule=async",
            *STALE,
            "trainer.total_training_steps=40",
            "trainer.num_capsules=0",
        )
        killing.result(timeout=1)
    assert len(engine_pids) == 2 and "is replaced (1 of at most 3)" in caplog.text
    assert sorted(found.metrics) == list(range(1, 41))
    prompts = json.loads((found.folder / "summary.json").read_text())["prompts"]
    assert prompts["trained"] == prompts["drawn"] == 40 * 8
    assert max(metrics["rollout/staleness_max"] for metrics in found.metrics.values()) <= 1


@pytest.mark.parametrize("schedule", [pytest.param("one_step_off", marks=pytest.mark.nightly), "async"])
def test_prompts_in_flight_are_drawn_again_after_a_resume_and_no_others(
    schedule: str, arithmetic: Path, tmp_path: Path
) -> None:
    """AReaL PR 1345: after a recovery the bound on what is in flight was too high, since nothing was counted."""
    words = (*PLACED, *STALE, f"trainer.schedule={schedule}", "trainer.max_staleness=2")
    interrupted = run(arithmetic, tmp_path, *words, "trainer.total_training_steps=3")
    state = json.loads((interrupted.folder / "checkpoints/step_3/trainer.json").read_text())
    left = {int(number): positions for number, positions in state["window"]["left"].items()}
    assert sum(map(len, left.values())) == 3 * 8, "three batches are in flight"
    assert state["window"]["next"] == min(left)
    found = run(arithmetic, tmp_path, *words, "trainer.total_training_steps=6")
    assert [metrics["rollout/staleness_max"] for metrics in found.metrics.values()][3:] == [0, 1, 2]
    prompts = json.loads((found.folder / "summary.json").read_text())["prompts"]
    assert prompts == {"drawn": 48, "trained": 48, "filtered": 0, "failed": 0, "in_flight": 0}


@pytest.mark.parametrize(
    "words",
    slow_but(
        {"transformers"},
        [
            ("several updates a step", (("actor.mini_batch_size=4", "actor.epochs=2"),)),
            ("a critic", (("algorithm=ppo", "algorithm.kl_coef=0.01", "actor.use_rollout_log_probs=false"),)),
            ("a greedy baseline", (("algorithm=remax", "rollout.n=2", "actor.policy_loss=ppo"),)),
            ("adapters alone", (("model.lora.rank=4", "rollout.lora=adapter"),)),
            ("a curriculum", (("data.sampler=curriculum",),)),
            ("transformers", (("rollout=hf",),)),
            ("a queue", (("rollout.dealing=queue",),)),
            ("failed rewards", (("reward.function={data}/reward.py:broken_for_some", "reward.max_failure_frac=0.9"),)),
        ],
    ),
)
def test_what_a_step_uses_works_on_the_asynchronous_schedule(
    words: tuple[str, ...], arithmetic: Path, tmp_path: Path
) -> None:
    own = [word.format(data=arithmetic) for word in words]
    found = run(arithmetic, tmp_path, *PLACED, *STALE, "trainer.schedule=async", *own)
    assert [metrics["rollout/staleness_max"] for metrics in found.metrics.values()] == [0, 1, 1, 1]
    prompts = json.loads((found.folder / "summary.json").read_text())["prompts"]
    assert prompts["trained"] + prompts["failed"] + prompts["filtered"] == prompts["drawn"] == 32
    assert any(metrics["actor/grad_norm"] > 0 for metrics in found.metrics.values())


@pytest.mark.parametrize("dealing", slow_but((), (("ahead", ("ahead",)), ("queue", ("queue",))), nightly={"queue"}))
def test_a_recorded_schedule_repeats_bit_for_bit(dealing: str, arithmetic: Path, tmp_path: Path) -> None:
    words = (
        f"rollout.dealing={dealing}",
        "rollout.max_num_seqs=12",
        *PLACED,
        *STALE,
        "trainer.schedule=async",
        "trainer.max_staleness=2",
        "trainer.total_training_steps=8",
        f"data.val_files=[{arithmetic}/val.parquet]",
        "trainer.test_freq=4",
    )
    first = run(arithmetic, tmp_path / "first", *words)
    record = first.folder / "schedule.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert all(len(line["groups"]) == 8 and line["events"]["engine 0"][-1][1] == "sync" for line in lines)
    second = run(arithmetic, tmp_path / "second", *words, f"trainer.replay_schedule={record}")
    assert exact(second) == exact(first)
    assert [json.loads(line) for line in (second.folder / "schedule.jsonl").read_text().splitlines()] == lines


@pytest.mark.slow
def test_an_engine_with_a_small_cache_gets_fewer_prompts_at_once(arithmetic: Path, tmp_path: Path) -> None:
    words = (
        *PLACED,
        *STALE,
        "trainer.schedule=async",
        "rollout.dealing=queue",
        "rollout.max_num_seqs=64",
        "data.max_response_length=48",
        "rollout.engine_kwargs={num_gpu_blocks_override: 12, block_size: 32}",
    )
    found = run(arithmetic, tmp_path, *words, "trainer.total_training_steps=6")
    steps = list(found.metrics.values())
    counted = [metrics for metrics in steps if "rollout/preemptions" in metrics]  # steps in which a group finished
    assert sum(metrics["rollout/preemptions"] for metrics in counted) > 0, "the cache holds twelve blocks of 32 tokens"
    assert steps[-1]["rollout/admission_limit"] <= 0.7 * 64
    assert counted[-1]["rollout/waiting_max"] < counted[0]["rollout/waiting_max"]


def exact(found: Run) -> list[dict[str, Any]]:
    return [{name: value for name, value in metrics.items() if repeats(name)} for metrics in found.metrics.values()]


def test_a_schedule_of_another_run_is_refused(arithmetic: Path, tmp_path: Path) -> None:
    record = tmp_path / "schedule.jsonl"
    record.write_text("{}\n")
    with pytest.raises(ValueError, match=r"replay_schedule=.* cannot be read: .*Give the schedule.jsonl of a run"):
        run(arithmetic, tmp_path, *PLACED, *STALE, "trainer.schedule=async", f"trainer.replay_schedule={record}")


@pytest.mark.slow
def test_engines_are_ended_and_started_while_training_continues(arithmetic: Path, tmp_path: Path) -> None:
    """In a process with its own Ray, which has a core for each of three workers."""
    words = arguments(
        arithmetic,
        tmp_path,
        *PLACED,
        *STALE,
        "cluster.placement={trainer: 1, rollout: 2}",
        "trainer.schedule=async",
        "trainer.total_training_steps=4000",
        "trainer.loggers=[console,jsonl]",
        "data.val_files=[]",
    )
    folder, log = tmp_path / "default", tmp_path / "log.txt"
    program = [sys.executable, "-m", "verl_like"]
    with log.open("w") as out, subprocess.Popen([*program, "train", *words], stdout=out, stderr=out) as run_in_progress:
        try:
            wait_for(lambda: num_steps(folder) >= 2, log)
            subprocess.run([*program, "scale", str(folder), "rollout=1"], check=True, timeout=60)
            wait_for(lambda: "engine 1 is ended" in log.read_text(), log)
            subprocess.run([*program, "scale", str(folder), "rollout=2"], check=True, timeout=60)
            wait_for(lambda: "engine 2 is started" in log.read_text(), log)
            wait_for(lambda: "engine 2" in (folder / "schedule.jsonl").read_text().splitlines()[-1], log)
        finally:
            run_in_progress.send_signal(signal.SIGINT)
            assert run_in_progress.wait(timeout=60) == 0, log.read_text()[-2000:]
    prompts = json.loads((folder / "summary.json").read_text())["prompts"]
    assert prompts["trained"] == prompts["drawn"] == 8 * num_steps(folder)


def num_steps(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def wait_for(condition: Callable[[], bool], log: Path, *, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


def test_a_sync_does_not_wait_for_the_longest_request(arithmetic: Path, tmp_path: Path, ray_cluster: None) -> None:
    """verl issue 4896: a sync took as long as the longest response."""
    words = arguments(arithmetic, tmp_path, *PLACED, *STALE, "trainer.schedule=async", "data.val_files=[]")
    config = compose(None, [*words, "data.max_response_length=50"]).config
    tokenizer, arrived = load_tokenizer(config.model.tokenizer), list[dict[str, Any]]()
    prompts = train_prompts(config, tokenizer)
    folder, roles = RunFolder(config), frozenset({"actor", "rollout"})
    with stack(config, tokenizer, folder, roles=roles, actor_updates=1, critic_updates=0) as built:
        engines = built.rollout
        assert isinstance(engines, EnginePool)
        version = engines.sync().version
        long = engines.admit(
            put_prompts([prompts[number] for number in range(64)]),  # four times what runs at once
            n=4,
            sampling=Sampling(max_tokens=50, ignore_eos=True),
            step=1,
            version=version,
            first_sample=0,
            arrived=lambda facts, block: arrived.append(facts),
        )
        reports = [engines.sync() for _ in range(3)]
        assert not long.is_complete, "the syncs were over before the responses"
        engines.wait_until(lambda: long.is_complete, [long])
    assert all(report.pause_s < 2 for report in reports)
    assert [set(facts["response_tokens"].tolist()) for facts in arrived] == [{50}] * len(arrived)
    assert sum(len(facts["response_tokens"]) for facts in arrived) == 256


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            ("cluster.placement={trainer: 2, rollout: 1}", "actor.fsdp.shard_size=all"),
            id="two-trainers",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            ("cluster.placement={trainer: 1, rollout: 2}", "rollout.tensor_parallel_size=2"), id="tensor-parallel"
        ),
    ],
)
def test_weights_arrive_whatever_the_ranks_of_both_sides(
    words: tuple[str, ...], arithmetic: Path, tmp_path: Path
) -> None:
    """In a process with its own Ray, which has a core for each of three workers."""
    own = arguments(arithmetic, tmp_path, *PLACED, *words, "trainer.total_training_steps=3", "data.val_files=[]")
    done = subprocess.run(
        [sys.executable, "-m", "verl_like", "train", *own], check=False, timeout=240, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "default/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(line["rollout/log_prob_diff_max"] < 1e-4 and line["sync/checksum"] for line in lines)
