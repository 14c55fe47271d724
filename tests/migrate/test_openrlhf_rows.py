"""The translation of OpenRLHF's train_sft, train_dpo and train_rm."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from recipes.arithmetic.model import write_model
from verl_like.checks.rules import contradictions
from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.config.options import option_at
from verl_like.config.reads import reads
from verl_like_migrate import openrlhf_rows
from verl_like_migrate.migration import migrate, translated
from verl_like_migrate.programs import jobs
from verl_like_migrate.settings import read_words
from verl_like_migrate.tables import KINDS, table
from verl_like_migrate.translation import Translation, translate

ROW_JOBS = ("sft", "dpo", "rm")
# The same command in the flags of 0.11 and in those of 0.8.
DOTTED = {
    "sft": """--model.model_name_or_path m --data.dataset a.jsonl --data.input_key q --data.output_key a
        --data.input_template 'Q: {}' --data.max_len 64 --train.batch_size 8 --train.micro_batch_size 2
        --train.max_epochs 3 --adam.lr 1e-4 --adam.weight_decay 0.1 --ckpt.save_steps 5 --ds.lora.rank 8
        --ds.zero_stage 3""",
    "dpo": """--model.model_name_or_path m --ref.model_name_or_path r --data.dataset a.jsonl,b.jsonl
        --data.dataset_probs 0.7,0.3 --data.prompt_key q --data.max_len 64 --train.batch_size 8
        --train.micro_batch_size 2 --model.beta 0.2 --model.label_smoothing 0.1 --model.nll_loss_coef 0.5
        --ref.offload""",
    "rm": """--model.model_name_or_path m --data.dataset a.jsonl --eval.dataset v.jsonl --eval.steps 10
        --data.max_len 64 --train.batch_size 8 --model.margin_loss_enable --model.loss_type logexp
        --adam.betas 0.8 0.99 --train.seed 7""",
}
FLAT = {
    "sft": """--pretrain m --dataset a.jsonl --input_key q --output_key a --input_template 'Q: {}' --max_len 64
        --train_batch_size 8 --micro_train_batch_size 2 --max_epochs 3 --learning_rate 1e-4 --l2 0.1 --save_steps 5
        --lora_rank 8 --zero_stage 3""",
    "dpo": """--pretrain m --ref_pretrain r --dataset a.jsonl,b.jsonl --dataset_probs 0.7,0.3 --prompt_key q
        --max_len 64 --train_batch_size 8 --micro_train_batch_size 2 --beta 0.2 --label_smoothing 0.1
        --nll_loss_coef 0.5 --ref_offload""",
    "rm": """--pretrain m --dataset a.jsonl --eval_dataset v.jsonl --eval_steps 10 --max_len 64
        --train_batch_size 8 --margin_loss --loss logexp --adam_betas 0.8 0.99 --seed 7""",
}
OURS: dict[str, dict[str, Any]] = {
    "sft": {
        "model.path": "m",
        "data.train_files": ["a.jsonl"],
        "data.prompt_key": "q",
        "data.answer_key": "a",
        "data.format_prompt": "Q: {{ content }}",
        "data.train_batch_size": 8,
        "actor.mini_batch_size": 8,
        "actor.max_tokens_per_micro_batch": "128",
        "trainer.total_epochs": 3,
        "actor.optim.lr": 1e-4,
        "actor.optim.weight_decay": 0.1,
        "trainer.save_freq": 5,
        "model.lora.rank": 8,
    },
    "dpo": {
        "model.path": "m",
        "dpo.ref_path": "r",
        "data.train_files": ["a.jsonl", "b.jsonl"],
        "data.train_weights": [0.7, 0.3],
        "data.prompt_key": "q",
        "data.train_batch_size": 8,
        "actor.mini_batch_size": 8,
        "actor.max_tokens_per_micro_batch": "256",
        "dpo.beta": 0.2,
        "dpo.losses": {"cdpo": 1.0, "sft": 0.5},
        "dpo.label_smoothing": 0.1,
    },
    "rm": {
        "model.path": "m",
        "data.train_files": ["a.jsonl"],
        "data.val_files": ["v.jsonl"],
        "trainer.test_freq": 10,
        "data.train_batch_size": 8,
        "actor.mini_batch_size": 8,
        "actor.optim.beta1": 0.8,
        "actor.optim.beta2": 0.99,
        "trainer.seed": 7,
    },
}
LENGTHS = {"data.max_prompt_length": 64, "data.max_response_length": 64, "data.overlong_prompts": "drop"}


def of(job: str, line: str) -> Translation:
    return translated("openrlhf", read_words("openrlhf", shlex.split(line), folder=Path()), job=job)


@pytest.mark.parametrize("job", ROW_JOBS)
def test_what_a_table_names_is_here_and_read_by_the_command(job: str) -> None:
    known = table("openrlhf", job)
    entries = [*known.exact.values(), *known.patterns]
    renamed = [entry.to for entry in entries if entry.kind == "renamed"]
    assert renamed and [name for name in renamed if option_at(name) is None or not reads(job, name)] == []
    assert {entry.kind for entry in entries} == set(KINDS)
    named = [*known.defaults, *(key for keys in known.aliases.values() for key in keys)]
    assert [key for key in named if known.entry(key) is None] == []


def test_every_converter_is_named_by_a_table() -> None:
    named = {
        entry.to for job in ROW_JOBS for entry in table("openrlhf", job).exact.values() if entry.kind == "converted"
    }
    assert named == set(openrlhf_rows.CONVERTERS)


@pytest.mark.parametrize("job", ROW_JOBS)
@pytest.mark.parametrize("lines", [DOTTED, FLAT], ids=["dotted", "flat"])
def test_a_command_sets_the_equal_options(job: str, lines: dict[str, str]) -> None:
    found = of(job, lines[job])
    assert found.settings == {**OURS[job], **LENGTHS} and not found.problems and not found.empty


@pytest.mark.parametrize("job", ROW_JOBS)
@pytest.mark.parametrize(
    "start", ["deepspeed --module openrlhf.cli.train_{}", "python -m openrlhf.cli.train_{}", "torchrun -m my.own"]
)
def test_a_script_becomes_a_recipe_of_its_command(job: str, start: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{start.format(job)} {' '.join(DOTTED[job].split())}\n")
    found = migrate("openrlhf", tmp_path / "run.sh", [], environment={})
    assert found.translation.job == job and found.translation.settings == {**OURS[job], **LENGTHS}
    (tmp_path / "run.yaml").write_text(found.recipe())
    config = compose(str(tmp_path / "run.yaml"), []).config
    assert config.data.train_batch_size == 8 and config.actor.optim.schedule == "cosine"
    assert contradictions(config) == []


def test_the_first_run_of_a_script_decides_the_command(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "deepspeed --module openrlhf.cli.train_rm --train.seed 1\n"
        "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --seed 2\n"
    )
    found = migrate("openrlhf", tmp_path / "run.sh", [], environment={})
    assert (found.translation.job, found.translation.settings) == ("rm", {"trainer.seed": 1})
    assert "the script starts 2 runs; this is the first of them." in found.notes


@pytest.mark.parametrize("job", ROW_JOBS)
def test_its_defaults_alone_are_a_configuration_here(job: str) -> None:
    needed = {"data.output_key": "a"} if job == "sft" else {}
    found = translate(table("openrlhf", job), needed)
    assert [line.key for line in found.lines] == [*needed] and not found.problems
    assert found.defaults["actor.optim.lr"] == {"sft": 5e-6, "dpo": 1e-5, "rm": 9e-6}[job]
    assert found.defaults["data.max_prompt_length" if job == "sft" else "actor.mini_batch_size"] == (
        2048 if job == "sft" else 128
    )
    assert [name for name in found.defaults if not reads(job, name)] == []


def with_answer(job: str, line: str) -> str:
    """Add the answer's column, which train_sft needs, unless the words name columns."""
    return f"--output_key a {line}" if job == "sft" and "_key" not in line else line


@pytest.mark.parametrize(
    ("job", "line", "ours"),
    [
        ("sft", "--lr_scheduler linear --min_lr_ratio 0.2", {"actor.optim.min_lr_ratio": 0.0}),
        ("sft", "--lr_scheduler cosine_with_min_lr --min_lr_ratio 0.2", {"actor.optim.min_lr_ratio": 0.2}),
        ("sft", "--lr_scheduler constant --lr_warmup_ratio 0.1", {"actor.optim.warmup_frac": 0.0}),
        ("sft", "--apply_chat_template --input_template 'Q: {}'", {"data.format_prompt": None}),
        ("sft", "--input_template 'no place'", {"data.format_prompt": None}),
        ("sft", "--input_template 'Q: {}\n'", {"data.format_prompt": "Q: {{ content }}\n\n"}),
        ("sft", "--max_samples 10", {"data.train_max_samples": 10}),
        ("sft", "--input_key messages", {"sft.loss_on": "last_turn", "data.answer_key": None}),
        ("dpo", "--data.dataset Org/Pairs --data.dataset_split tiny", {"data.train_files": ["hf:Org/Pairs:tiny"]}),
        ("dpo", "--pretrain m --ref_pretrain m", {"dpo.ref_path": ""}),
        ("dpo", "--nll_loss_coef 0.2", {"dpo.losses": {"sigmoid": 1.0, "sft": 0.2}}),
        ("dpo", "--input_template 'Q: {}'", {"data.format_prompt": None}),
        ("dpo", "--input_template 'Q: {}' --prompt_key q", {"data.format_prompt": "Q: {{ content }}"}),
        ("dpo", "--chosen_key chosen --optim adam --aux_loss_coef 0.0", {}),
        ("rm", "--eval_dataset v.jsonl", {"data.val_files": ["v.jsonl"], "trainer.test_freq": None}),
        ("rm", "dpo.beta=0.2 rm.center_rewards_coefficient=0.1",
         {"dpo.beta": None, "rm.center_rewards_coefficient": 0.1}),
    ],
)  # fmt: skip
def test_flags_whose_numbers_have_another_meaning(job: str, line: str, ours: dict[str, Any]) -> None:
    found = of(job, with_answer(job, line))
    assert {name: found.settings.get(name) for name in ours} == ours and not found.problems


@pytest.mark.parametrize(
    ("job", "line", "reported"),
    [
        ("dpo", "--ipo", "its IPO compares sums over tokens"),
        ("dpo", "--chosen_key better", "a column of the name chosen"),
        ("dpo", "--rejected_key worse", "a column of the name rejected"),
        ("dpo", "--optim muon", "torch.optim.AdamW is the only optimiser"),
        ("dpo", "--lr_scheduler polynomial", "expected one of cosine_with_min_lr"),
        ("dpo", "--dataset org/name@folder", "names a folder of a data set after @"),
        ("dpo", "--lora_dropout 0.1", "Adapters have no dropout"),
        ("rm", "--lora_rank 8", "A reward model learns with all its weights"),
        ("rm", "--tokenizer_chat_template x", "model.tokenizer_path"),
        ("sft", "--multiturn", "Give whole conversations in the column messages"),
        ("sft", "--pretrain_mode", "Give texts in the column text"),
        ("sft", "--output_key ''", "data.output_key is empty; set it."),
        ("sft", "--input_key chats", "which verl_like reads from the column messages"),
        ("sft", "--train_batch_size 8", "data.input_key=input: its value cannot be read: without data.output_key"),
        ("sft", "--input_key q --output_key a b", "it names several columns"),
        ("sft", "--load_in_4bit", "Use model.lora"),
        ("sft", "--beta 0.1", "not a key of openrlhf"),
    ],
)
def test_what_is_not_available_is_reported_with_its_reason(job: str, line: str, reported: str) -> None:
    found = of(job, line if "without data.output_key" in reported else with_answer(job, line))
    problems = [*found.problems, *found.empty]
    assert problems and all(reported in problem for problem in problems)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with a model and rows, whose responses contain their prompts."""
    write_model(tmp_path / "model", 1)
    rows = [
        {"q": f"{i}+1=", "a": str(i + 1), "chosen": f"{i}+1={i + 1}", "rejected": f"{i}+1={i + 3}"} for i in range(8)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.processes
@pytest.mark.parametrize(
    ("job", "flags"), [("sft", "--input_key q --output_key a --input_template {}"), ("dpo", ""), ("rm", "")]
)
def test_a_command_of_openrlhf_passes_all_checks_before_workers_start(
    job: str, flags: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--pretrain {files}/model --dataset {files}/rows.jsonl --max_len 12 --train_batch_size 4 {flags}"
    words += f" --save_path {files}/out cluster.device=cpu"
    assert main([job, "--from", "openrlhf", "--dry-run", *words.split()]) == 0
    shown = capsys.readouterr().out
    assert f"steps       {4 if job == 'sft' else 2} of 4 {'rows' if job == 'sft' else 'pairs'} each" in shown
    assert not (files / "out").exists()


@pytest.mark.processes
def test_an_option_that_the_command_does_not_read_is_named(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = f"--pretrain {files}/model --dataset {files}/rows.jsonl --max_len 12 --train_batch_size 4 rollout.n=4"
    assert main(["dpo", "--from", "openrlhf", "--dry-run", *words.split(), "cluster.device=cpu"]) == 0
    assert "dpo does not read rollout.n" in caplog.text


def test_a_project_without_such_a_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dpo", "--from", "verl", "data.seed=1"]) == 2
    assert "found verl-like dpo --from verl, expected verl-like train --from verl" in capsys.readouterr().err
    assert jobs("openrlhf") == ("train", *ROW_JOBS)


def test_migrate_prints_the_command_that_runs_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.sh").write_text(f"deepspeed --module openrlhf.cli.train_dpo {' '.join(DOTTED['dpo'].split())}")
    out = tmp_path / "mine.yaml"
    assert main(["migrate", "--from", "openrlhf", "--out", str(out), str(tmp_path / "run.sh")]) == 0
    shown = capsys.readouterr().out
    assert f"Run:    verl-like dpo {out}" in shown and "`dpo.losses={cdpo: 1.0, sft: 0.5}`" in shown
