"""The commands, as a user types them: eval, generate, export, sft, config, doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e._engine_process import TIMEOUT_S
from tests.e2e.conftest import ROOT, Run, arguments, train
from tests.unit._validation_scores import assert_scores_give
from verl_like.cli import main
from verl_like.telemetry.metrics import METRICS
from verl_like.telemetry.trackers import read_metrics

NUM_VAL_ROWS = 24


@pytest.fixture(scope="module")
def val_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("val") / "val.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": f"{a}+7=", "answer": str(a + 7)}) + "\n" for a in range(NUM_VAL_ROWS))
    )
    return path


@pytest.fixture(scope="module")
def overrides(val_rows: Path) -> list[str]:
    return [
        f"data.val_files=[{val_rows}]",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
        "trainer.max_checkpoints=3",
        "rollout.val.n=2",
        "trainer.profile_steps=[2]",
        "trainer.total_training_steps=2",
    ]


@pytest.fixture(scope="module")
def run(arithmetic: Path, overrides: list[str], tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Run:
    """Two steps on two ranks with a validation and a checkpoint after each; one rank gives the same from them."""
    return train(arithmetic, tmp_path_factory.mktemp("run"), *overrides)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_a_run_reports_is_in_the_table_of_metrics(run: Run) -> None:
    names = {name for metrics in run.metrics.values() for name in metrics} - {"step"}
    assert not [name for name in names if not any(metric.matches(name) for metric in METRICS)]


def test_the_stages_of_a_step_that_is_to_be_profiled_are_traced_in_every_worker(run: Run) -> None:
    [folder] = (run.folder / "profile").iterdir()
    assert folder.name == "step_2"
    found = {path.name.removesuffix(".json.gz") for path in folder.iterdir()}
    ranks = {f"worker_rank_{rank}.{stage}" for rank in (0, 1) for stage in ("rollout", "update_actor", "sync")}
    assert found >= ranks | {"calls"}


def test_a_finished_run_started_again_says_so_and_starts_nothing(
    run: Run,
    arithmetic: Path,
    overrides: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a cluster is asked for")

    monkeypatch.setattr("verl_like.runs.launch.ray_cluster", refuse)
    before = contents(run.folder)
    assert main(["train", *arguments(arithmetic, run.folder.parent, *overrides)]) == 0
    message = capsys.readouterr()
    finished, *places = message.out.splitlines()
    assert "is finished: step 2 was the last. To continue it, set trainer.total_training_steps above 2" in finished
    assert [line.split()[0] for line in places] == ["model", "checkpoints", "report", "curves", "metrics", "samples"]
    assert f"{run.folder}/model" in message.out
    assert "Ray" not in message.err, "it is said before anything is imported"
    assert contents(run.folder) == before
    longer = arguments(arithmetic, run.folder.parent, *overrides, "trainer.total_training_steps=3")
    assert main(["train", *longer]) == 1
    assert "a cluster is asked for" in capsys.readouterr().err


@pytest.mark.slow
def test_eval_of_a_checkpoint_gives_what_training_measured_and_touches_nothing_else(
    run: Run, arithmetic: Path, overrides: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run.folder)
    words = arguments(arithmetic, run.folder.parent, *overrides, "cluster.workers_per_node=1")
    assert main(["eval", *words, f"trainer.resume={run.folder}/checkpoints/step_1"]) == 0
    metrics = read_metrics(run.folder / "eval/metrics.jsonl")
    for name in ("val/mean@2", "val/pass@2", "val/maj@2", "val/default/length/mean@2"):
        assert metrics[name] == {1: run.metrics[1][name]}
    assert_scores_give(run.metrics[1], run.folder / "eval/val_step_1.scores.parquet", n=2)
    assert f"val/mean@2 {run.metrics[1]['val/mean@2']:.4f}" in capsys.readouterr().out
    assert {name: data for name, data in contents(run.folder).items() if not name.startswith("eval/")} == before


@pytest.mark.slow
def test_generate_writes_every_response_of_the_newest_checkpoint(
    run: Run, arithmetic: Path, overrides: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = arguments(arithmetic, run.folder.parent, *overrides, "cluster.workers_per_node=1")
    assert main(["generate", *words]) == 0
    path = Path(capsys.readouterr().out.strip().splitlines()[-1])
    assert path == run.folder / "eval/generated_step_2.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["uid"], row["sample"]) for row in rows] == [
        (f"val.jsonl:{i}", n) for i in range(NUM_VAL_ROWS) for n in range(2)
    ]
    assert rows[5]["prompt"] == "2+7=" and all(isinstance(row["response"], str) for row in rows)
    # Validation saved some of the same samples: the same seeds on the same weights.
    saved = [json.loads(line) for line in (run.folder / "samples/val_step_2.jsonl").read_text().splitlines()]
    assert [row["response"] for row in rows[: len(saved)]] == [row["response"] for row in saved]


@pytest.fixture(scope="module")
def exported(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that ``verl-like export`` writes from the last checkpoint."""
    out = tmp_path_factory.mktemp("export") / "exported"
    assert main(["export", str(run.folder / "checkpoints/step_2"), str(out)]) == 0
    return out


def greedy_by_transformers(model: Path) -> tuple[list[list[int]], list[list[int]]]:
    """Return a few prompts and the model's most likely responses to them."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    policy = AutoModelForCausalLM.from_pretrained(model).eval()
    prompts = [tokenizer(text)["input_ids"] for text in ("3+4=", "12+30=", "7+7=")]
    responses = [
        policy.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)[0, len(ids) :].tolist()
        for ids in prompts
    ]
    return prompts, responses


def test_an_exported_checkpoint_is_the_final_model_for_transformers(run: Run, exported: Path) -> None:
    found, final = load_file(exported / "model.safetensors"), load_file(run.folder / "model/model.safetensors")
    assert found.keys() == final.keys()
    assert all(torch.equal(found[name], final[name]) for name in final)
    assert greedy_by_transformers(exported) == greedy_by_transformers(run.folder / "model")


@pytest.mark.slow
def test_an_exported_checkpoint_is_the_policy_for_transformers_and_for_vllm(exported: Path) -> None:
    prompts, greedy = greedy_by_transformers(exported)
    assert greedy_by_vllm(exported, prompts) == greedy


def greedy_by_vllm(model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Return the output of plain vLLM, which reads the weights from the folder, in a separate process."""
    code = f"""
import json, vllm
llm = vllm.LLM({str(model)!r}, dtype="float32", max_model_len=64, enforce_eager=True, kv_cache_memory_bytes=50 * 2**20)
params = vllm.SamplingParams(temperature=0.0, max_tokens=8)
outputs = llm.generate([{{"prompt_token_ids": ids}} for ids in {prompts}], params, use_tqdm=False)
print("RESULT", json.dumps([list(output.outputs[0].token_ids) for output in outputs]))
"""
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | environment,
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, result.stderr[-3000:]
    tokens: list[list[int]] = json.loads(lines[0].removeprefix("RESULT "))
    return tokens


def test_export_without_a_target_leaves_the_runs_own_model_alone(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(run.folder / "model")
    assert main(["export", str(run.folder / "checkpoints/step_1")]) == 0
    out = Path(capsys.readouterr().out.strip().splitlines()[-1])
    assert out == run.folder / "export/step_1"
    assert contents(run.folder / "model") == before
    assert contents(out)["model.safetensors"] != before["model.safetensors"], "step 1 is not the last step"


def test_sft_lowers_the_loss_continues_where_it_stopped_and_writes_a_model(
    arithmetic: Path, tmp_path: Path, ray_cluster: None
) -> None:
    words = arguments(
        arithmetic,
        tmp_path,
        f"data.train_files=[{arithmetic}/sft.parquet]",
        "data.train_batch_size=32",
        "actor.mini_batch_size=32",
        "critic.mini_batch_size=32",
        "actor.optim.lr=3e-3",
        "trainer.save_freq=12",
        "trainer.profile_steps=[13]",
    )
    assert main(["sft", *words, "trainer.total_training_steps=24"]) == 0
    folder = tmp_path / "default"
    loss = read_metrics(folder / "metrics.jsonl")["sft/loss"]
    assert list(loss) == list(range(1, 25))
    assert sum(loss[step] for step in (22, 23, 24)) < 0.75 * sum(loss[step] for step in (1, 2, 3)), loss
    trained, initial = load_file(folder / "model/model.safetensors"), load_file(arithmetic / "model/model.safetensors")
    assert trained.keys() == initial.keys() and not torch.equal(
        trained["model.embed_tokens.weight"], initial["model.embed_tokens.weight"]
    )
    traces = sorted(path.name for path in (folder / "profile/step_13").iterdir())
    assert traces == ["calls.json.gz", *(f"worker_rank_{rank}.update_actor.json.gz" for rank in (0, 1))]
    # A run that stopped after the checkpoint of step 12 ends with the same weights.
    for name in ("model", "checkpoints/step_24"):
        (folder / name).rename(tmp_path / Path(name).name)
    assert main(["sft", *words, "trainer.total_training_steps=24"]) == 0
    assert read_metrics(folder / "metrics.jsonl")["sft/loss"] == loss
    assert (folder / "model/model.safetensors").read_bytes() == (tmp_path / "model/model.safetensors").read_bytes()


def test_config_prints_where_each_value_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", str(ROOT / "recipes/arithmetic/grpo.yaml"), "rollout.n=4"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["n:", "4", "#", "command", "line"] in lines
    origins = {" ".join(line[line.index("#") + 1 :]) for line in lines if "#" in line}
    assert origins >= {"default", "command line", "conf/algorithm/grpo.yaml", "conf/rollout/vllm.yaml"}
    assert any(origin.endswith("recipes/arithmetic/grpo.yaml") for origin in origins)


def test_config_of_an_unknown_key_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "rolout.n=4"]) == 2
    assert "did you mean rollout.n?" in capsys.readouterr().err


def test_an_unknown_command_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["trian"])
    assert caught.value.code == 2
    assert "train" in capsys.readouterr().err
