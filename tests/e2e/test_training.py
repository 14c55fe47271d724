"""Short runs on the real stack: Ray, FSDP2 over gloo, vLLM on CPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from safetensors.torch import load_file
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from tests._tiers import slow_but
from tests.e2e._kept_workers import KeptWorkers
from tests.e2e.conftest import Run, arguments, train
from tests.unit._validation_scores import assert_scores_give
from verl_like.config.compose import compose
from verl_like.ops.matmul_libraries import CLASSES, MatmulLibraries, has_onednn, kept
from verl_like.protocol import DataProto, Ragged, read_rows, write_rows
from verl_like.report.content import content_of
from verl_like.report.page import MARK
from verl_like.report.run_files import RunFiles
from verl_like.runs.folder import RunFolder
from verl_like.runs.replay_plan import replay_plan
from verl_like.telemetry.metrics import OF_THE_MACHINE
from verl_like.training.replay import replay, result_of
from verl_like.workers.matmul_record import NAME as MATMUL

pytestmark = pytest.mark.usefixtures("ray_cluster")

# Models as small as these are replicas by themselves; larger ones, and all on GPUs, are sharded.
SHARDED = "actor.fsdp.shard_size=all"


@pytest.fixture(scope="module")
def grpo(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Run:
    """Return the run that the others are compared with: GRPO, two ranks, sharded, packed rows, no validation."""
    return train(
        arithmetic,
        tmp_path_factory.mktemp("grpo"),
        SHARDED,
        f"data.val_files=[{arithmetic}/val.parquet]",
        "trainer.val_before_train=false",
        "trainer.test_freq=0",
        "trainer.total_training_steps=4",
        "trainer.save_freq=2",
        "trainer.async_save=false",  # a checkpoint that is being written holds a reference of each rank
        "rollout.sync_checksum=true",
    )


def test_grpo_trains_on_two_ranks_with_engine_and_trainer_in_agreement(grpo: Run) -> None:
    assert sorted(grpo.metrics) == [1, 2, 3, 4]
    for step, metrics in grpo.metrics.items():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4, "float32 engine and trainer must give the same log-probs"
        assert metrics["rollout/weight_version"] == step - 1, "each step generates from the weights of the step before"
        assert metrics["actor/grad_norm"] > 0
    assert [step for step in grpo.metrics if "checkpoint/wait_s" in grpo.metrics[step]] == [3], (
        "of the one after step 2"
    )
    assert grpo.progress.step == 4
    prompts = json.loads((grpo.folder / "summary.json").read_text())["prompts"]
    assert prompts == {"drawn": 32, "trained": 32, "filtered": 0, "failed": 0, "in_flight": 0}


def test_the_size_of_a_sync_is_reported(grpo: Run) -> None:
    weights = load_file(grpo.folder / "model/model.safetensors")
    num_bytes = sum(tensor.nbytes for tensor in weights.values()) + weights["model.embed_tokens.weight"].nbytes  # tied
    for metrics in grpo.metrics.values():
        assert metrics["sync/bytes"] == num_bytes and metrics["sync/collectives"] == 1
        assert metrics["sync/gib_per_s"] == pytest.approx(num_bytes / 2**30 / metrics["sync/seconds"])
        # A rank begins while others, or the driver, are still at the update.
        assert 0 < metrics["sync/seconds"] < metrics["time/update_actor_s"] + metrics["time/sync_s"]
    assert len({metrics["sync/checksum"] for metrics in grpo.metrics.values()}) == len(grpo.metrics)


def test_a_run_whose_validation_is_turned_off_never_validates(grpo: Run) -> None:
    names = {name for metrics in grpo.metrics.values() for name in metrics}
    assert not [name for name in names if name.startswith("val/")]
    summary = json.loads((grpo.folder / "summary.json").read_text())
    assert summary["initial_val"] is None and summary["final_val"] is None
    assert not list(grpo.folder.glob("samples/val_step_*")) and not (grpo.folder / "checkpoints/best").exists()


def test_the_memory_of_a_worker_is_reported_next_to_the_plan(grpo: Run) -> None:
    for metrics in grpo.metrics.values():
        assert 0 < metrics["memory/baseline_gib"] < metrics["memory/planned_gib"]
    assert "GiB; planned were " in (grpo.folder / "ledger.md").read_text()


def test_the_output_of_each_process_is_in_the_folder_of_its_start(grpo: Run) -> None:
    logs = {path.name: path.read_text() for path in (grpo.folder / "logs/1").iterdir()}
    assert set(logs) == {"driver.log", "worker-rank-0.log", "worker-rank-1.log", "scorer-host-0.log"}
    for name in set(logs) - {"driver.log"}:
        assert f"{name.removesuffix('.log').replace('-', ' ')} is process " in logs[name]


def test_references_die_with_their_step_and_nothing_is_spilled(grpo: Run) -> None:
    assert len({metrics["store/live_references"] for metrics in grpo.metrics.values()}) == 1
    for metrics in grpo.metrics.values():
        assert metrics["store/put_bytes"] + metrics["store/inlined_bytes"] > 9 * metrics["perf/response_tokens"]
        assert (
            metrics["store/fetched_bytes"] > 0 and metrics["store/blocks"] > 0 and metrics["store/spilled_bytes"] == 0
        )


def test_a_resumed_run_continues_bit_for_bit(
    grpo: Run, arithmetic: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    overrides = SHARDED, "trainer.save_freq=2", "rollout.sync_checksum=true"
    train(arithmetic, tmp_path, *overrides, "trainer.total_training_steps=2")
    ray_cluster.end()  # a run is continued by processes that remember nothing
    resumed = train(arithmetic, tmp_path, *overrides, "trainer.total_training_steps=4")
    assert sorted(resumed.metrics) == [1, 2, 3, 4]
    for step in (3, 4):
        timeless = {k: v for k, v in grpo.metrics[step].items() if not k.startswith(OF_THE_MACHINE)}
        assert {k: resumed.metrics[step][k] for k in timeless} == timeless
    assert (resumed.folder / "model/model.safetensors").read_bytes() == (
        grpo.folder / "model/model.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_a_curriculum_continues_bit_for_bit_with_the_scores_of_its_checkpoint(arithmetic: Path, tmp_path: Path) -> None:
    """A replay begins from the checkpoint of step 2 and compares the rows and metrics of what follows."""
    run = train(
        arithmetic,
        tmp_path,
        "data.sampler=curriculum",
        "data.curriculum.low=0.01",
        "algorithm.filter_groups=true",
        "algorithm.max_num_gen_batches=9",
        "trainer.total_training_steps=4",
        "trainer.save_freq=2",
        "rollout=hf",
    )
    state = json.loads((run.folder / "checkpoints/step_2/trainer.json").read_text())["loader"]
    assert state["sampler"]["given"] * 8 == state["num_drawn"] == run.metrics[2]["prompts/drawn"]
    unseen = [run.metrics[step]["curriculum/unseen_frac"] for step in range(1, 5)]
    assert unseen == sorted(unseen, reverse=True) and unseen[0] < 1
    step, found = replay(replay_plan(run.folder, 4))
    assert (step, found.difference) == (4, None) and found.num_rows == 32


def test_a_step_is_replayed_from_the_checkpoint_before_it_and_the_first_value_that_differs_is_named(grpo: Run) -> None:
    assert sorted(path.name for path in (grpo.folder / "capsules").iterdir()) == ["step_3", "step_4"]
    planned = replay_plan(grpo.folder, 4)
    step, found = replay(planned)
    assert (planned.first, step, found.difference) == (3, 4, None)
    assert (grpo.folder / "replays/step_4" / MATMUL).read_bytes() == (grpo.folder / MATMUL).read_bytes()
    assert (found.num_rows, found.num_columns) == (32, 14) and found.num_metrics > 30
    assert result_of(planned, step, found).startswith("step 4 equals its record bit for bit: 32 rows of 14 columns and")

    rows = grpo.folder / "capsules/step_3/rows_000000.npz"  # as if it had been other rewards
    table = read_rows(rows)
    table["score"][5] += 1.0
    write_rows(rows, table)
    step, found = replay(planned)
    assert step == 3, "what follows from the first difference is not looked at"
    assert found.difference is not None
    row, score = f"row 5 (prompt {table['uid'][5]}, sample {table['sample'][5]})", table["score"][5]
    assert found.difference.startswith(
        f"the stage reward: score of {row}: {score} recorded, {score - 1} replayed; 1 of"
    )


@pytest.mark.slow
@pytest.mark.skipif(not has_onednn(), reason="this PyTorch has no oneDNN")
def test_a_replay_rounds_as_the_record_of_its_run_says_on_a_machine_with_another_choice(
    arithmetic: Path, tmp_path: Path
) -> None:
    """No machine leaves every product to oneDNN: PyTorch's library is faster for the smallest."""
    folder = RunFolder(compose(None, arguments(arithmetic, tmp_path)).config).path
    kept(MatmulLibraries(map(str, CLASSES)), folder / MATMUL)
    run = train(arithmetic, tmp_path, "trainer.total_training_steps=4", "trainer.save_freq=2", "rollout=hf")
    assert run.folder == folder
    step, found = replay(replay_plan(folder, 4))
    assert (step, found.difference) == (4, None)
    (folder / MATMUL).write_text('{"onednn": []}')
    step, found = replay(replay_plan(folder, 4))
    assert found.difference is not None, "another choice rounds differently"


def first_step(run: Run) -> dict[str, float]:
    return {
        name: run.metrics[1][name]
        for name in ("actor/loss", "actor/grad_norm", "reward/score_mean", "rollout/response_tokens_mean")
    }


WAYS = {
    "one-rank-padded": ["cluster.workers_per_node=1", "model.remove_padding=false"],
    "one-rank-in-micro-batches-of-operations-that-repeat": [
        "cluster.workers_per_node=1",
        "actor.max_tokens_per_micro_batch=64",
        "trainer.deterministic=true",
    ],
    "replicas": [],
    "tensor-parallel-and-shared-sequences": [
        SHARDED,
        "rollout.tensor_parallel_size=2",
        "actor.sequence_parallel_size=2",
    ],
    "compiled-and-dealt-by-a-queue": [
        "actor.use_torch_compile=true",
        "rollout.dealing=queue",
        "rollout.max_num_seqs=8",
    ],
}


@pytest.mark.parametrize(
    "overrides",
    slow_but(
        {"tensor-parallel-and-shared-sequences"},
        ((name, (overrides,)) for name, overrides in WAYS.items()),
        nightly={"one-rank-padded"},
    ),
)
def test_how_a_step_is_computed_does_not_change_its_numbers(
    grpo: Run, arithmetic: Path, tmp_path: Path, overrides: list[str]
) -> None:
    other = train(arithmetic, tmp_path, "trainer.total_training_steps=1", *overrides)
    assert first_step(other) == pytest.approx(first_step(grpo), rel=1e-4, abs=1e-6)
    assert other.metrics[1]["rollout/log_prob_diff_max"] < 1e-4
    assert other.metrics[1]["sync/collectives"] == float(SHARDED in overrides)
    assert other.metrics[1]["actor/is_compiled"] == float("actor.use_torch_compile=true" in overrides)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Everything that ``ray.get`` brings into the driver."""
    seen: list[object] = []
    genuine = ray.get

    def watched(*arguments: Any, **options: Any) -> Any:
        result = genuine(*arguments, **options)
        seen.extend(result if isinstance(result, list) else [result])
        return result

    monkeypatch.setattr(ray, "get", watched)
    return seen


def samples_of(run: Run, step: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / f"samples/step_{step}.jsonl").read_text().splitlines()]


def test_ppo_with_every_term_trains_and_the_driver_never_fetches_a_token_column(
    arithmetic: Path, tmp_path: Path, fetched: list[object]
) -> None:
    run = train(
        arithmetic,
        tmp_path,
        "algorithm.adv_estimator=gae",
        "algorithm.kl_coef=0.01",
        "actor.kl_loss_coef=0.01",
        "actor.entropy_coef=0.01",
        "actor.mini_batch_size=4",
        "actor.epochs=2",
        "critic.warmup_steps=1",
        "critic.optim.lr=1e-3",
        "critic.fsdp.shard_size=all",
        "trainer.total_training_steps=3",
        "actor.optim.schedule=cosine",
        "actor.optim.warmup_steps=2",
        "trainer.num_samples_to_save=-1",
    )
    assert "actor/loss" not in run.metrics[1] and "critic/value_loss" in run.metrics[1], "step 1 warms the critic up"
    assert run.metrics[2]["reward/kl_penalty_mean"] == pytest.approx(0, abs=1e-6), (
        "actor and reference are equal until the actor moves"
    )
    assert run.metrics[3]["reward/kl_penalty_mean"] != 0
    assert run.metrics[3]["actor/kl_loss"] > 0 and run.metrics[3]["actor/entropy"] > 0
    assert 1e-3 > run.metrics[2]["actor/lr"] > run.metrics[3]["actor/lr"] > 0, (
        "two updates of warm-up, then a cosine over the other six"
    )
    assert run.metrics[2]["rollout/log_prob_diff_max"] < 1e-4
    facts = [result for result in fetched if isinstance(result, dict) and "response_tokens" in result]
    assert facts, "the watch saw no facts, so it watched nothing"
    assert not [result for result in fetched if isinstance(result, DataProto | Ragged)]
    for step, metrics in run.metrics.items():
        lines = samples_of(run, step)
        for line in lines:
            assert line["advantage_min"] <= line["advantage_mean"] <= line["advantage_max"]
        tokens = [line["response_tokens"] for line in lines]
        assert np.average([line["advantage_mean"] for line in lines], weights=tokens) == pytest.approx(
            metrics["advantages/mean"], abs=1e-5
        ), "all of the step's 32 responses are among the samples"


@pytest.mark.slow
def test_the_hf_backend_rolls_out_like_vllm(grpo: Run, arithmetic: Path, tmp_path: Path) -> None:
    run = train(arithmetic, tmp_path, "rollout.backend=hf", "trainer.total_training_steps=1")
    assert run.metrics[1]["rollout/log_prob_diff_max"] < 1e-4


@pytest.mark.slow
def test_the_reward_rises_with_training(arithmetic: Path, tmp_path: Path) -> None:
    run = train(
        arithmetic,
        tmp_path,
        "trainer.total_training_steps=25",
        "data.train_batch_size=16",
        "actor.mini_batch_size=16",
        "critic.mini_batch_size=16",
        "actor.optim.lr=3e-3",
    )
    scores = [run.metrics[step]["reward/score_mean"] for step in range(1, 26)]
    assert sum(scores[-5:]) > 3 * sum(scores[:5]), f"the share of sevens should grow several times: {scores}"


def test_failed_scores_are_masked_counted_and_written_down(arithmetic: Path, tmp_path: Path) -> None:
    run = train(
        arithmetic,
        tmp_path,
        f"reward.function={arithmetic}/reward.py:broken_for_some",
        "trainer.total_training_steps=1",
        "reward.try_first=false",
        "reward.max_failure_frac=0.95",
        "trainer.num_samples_to_save=-1",
        "rollout=hf",
    )
    num_failed = int(run.metrics[1]["reward/num_failed"])
    assert 0 < num_failed < 32
    assert run.metrics[1]["reward/score_min"] >= 0.5, "a failure must not count as a zero"
    assert run.metrics[1]["prompts/failed"] == num_failed / 4, "it fails for all responses to a prompt"
    assert run.metrics[1]["prompts/trained"] == run.metrics[1]["prompts/drawn"] - num_failed / 4 == 8 - num_failed / 4
    failures = [json.loads(line) for line in (run.folder / "samples/reward_failures.jsonl").read_text().splitlines()]
    assert len(failures) == num_failed
    assert "even sums only" in failures[0]["message"] and failures[0]["prompt"].endswith("=")
    lines = samples_of(run, 1)
    assert len(lines) == 32 and sum(line["advantage"] is None for line in lines) == num_failed
    groups: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        if line["score"] is not None:
            groups.setdefault(line["uid"], []).append((line["score"], line["advantage"]))
    for group in groups.values():
        ranked = sorted(group)
        assert [advantage for _, advantage in ranked] == sorted(advantage for _, advantage in group), (
            "among siblings the better score has the greater advantage"
        )


def test_validation_keeps_the_best_checkpoint_and_the_summary_has_both_ends(arithmetic: Path, tmp_path: Path) -> None:
    run = train(
        arithmetic,
        tmp_path,
        f"data.val_files=[{arithmetic}/val.parquet]",
        "rollout.val.n=2",
        "trainer.val_before_train=true",
        "trainer.test_freq=1",
        "trainer.max_checkpoints=1",
        "trainer.loggers=[jsonl,tensorboard]",
        "rollout=hf",
    )
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    for kind, steps in (("train", [1, 2]), ("validation", [0, 1, 2])):
        shown = events.Tensors(f"samples/{kind}/text_summary")
        assert [event.step for event in shown] == steps
        assert b"**response**" in shown[0].tensor_proto.string_val[0]
    summary = json.loads((run.folder / "summary.json").read_text())
    assert (
        summary["initial_val"] == run.metrics[0]["val/mean@2"] and summary["final_val"] == run.metrics[2]["val/mean@2"]
    )
    assert summary["initial_val_metric"] == "val/mean@2" and summary["steps"] == 2 and summary["seed"] == 1
    for step, metrics in run.metrics.items():
        assert_scores_give(metrics, run.folder / f"samples/val_step_{step}.scores.parquet", n=2)
    best = max((1, 2), key=lambda step: (run.metrics[step]["val/mean@2"], -step))
    assert (run.folder / "checkpoints/best").resolve().name == f"step_{best}"
    assert load_file(run.folder / "model/model.safetensors")
    assert (run.folder / "curves.png").stat().st_size > 5000
    assert_is_reported(run.folder, steps=2)


def assert_is_reported(folder: Path, *, steps: int) -> None:
    """Check that the run has left its report, with its status, curves, lanes and samples with tokens."""
    written = (folder / "report.html").read_text()
    assert MARK in written and '"status": "finished"' in written
    content = content_of([RunFiles(folder, is_over=True)])
    [entry] = content.head["runs"]
    assert (entry["status"], entry["step"], entry["lanes"]["steps"]) == ("finished", steps, [*range(1, steps + 1)])
    assert {file["kind"] for file in entry["samples"]["steps"]} == {"train", "val"}
    [shard] = [file["shard"] for file in entry["samples"]["steps"] if (file["kind"], file["step"]) == ("train", steps)]
    for sample in json.loads(gzip.decompress(content.shards[shard])):
        text = "".join(sample["tokens"]["text"])
        assert text.replace("<pad>", "").startswith(sample["response"]), "special tokens are shown"
        assert len(sample["tokens"]["columns"]["log_prob"]) == sample["length"]
