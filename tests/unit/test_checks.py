"""Every rule: the message says what was found and what would work; a sound configuration passes."""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit._weights import NO_WEIGHTS
from verl_like.checks import (
    cluster,
    expert_parallel,
    experts,
    kernels,
    lora,
    models,
    pictures,
    pools,
    sampling_mask,
    validation,
)
from verl_like.checks import rules as checks
from verl_like.checks.rules import check, check_devices
from verl_like.config.problems import Refused
from verl_like.config.reads import as_read
from verl_like.config.schema import Config

Edit = Callable[[Config], None]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A configuration that passes, for two workers on CPU, with real files below the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"prompt": ["1+1="], "answer": ["2"]}), tmp_path / "data/train.parquet")
    for name in ("val.jsonl", "notes.txt"):
        (tmp_path / "data" / name).touch()
    (tmp_path / "model").mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / "model" / name).write_text("{}")
    (tmp_path / "model/model.safetensors").write_bytes(NO_WEIGHTS)
    sound = Config()
    sound.model.path = "model"
    sound.data.train_files = ["data/train.parquet"]
    sound.data.val_files = ["data/val.jsonl"]
    sound.cluster.device = "cpu"
    sound.cluster.workers_per_node = 2
    return sound


def refusal(config: Config, **changes: object) -> str:
    """Return the message with which a configuration with these changes is refused (dots as double underscores)."""
    num_devices = changes.pop("num_devices", 0)
    assert isinstance(num_devices, int)
    apply(config, changes)
    with pytest.raises(ValueError) as caught:
        check(config, num_devices=num_devices)
    return str(caught.value)


def apply(config: Config, changes: dict[str, object]) -> None:
    for name, value in changes.items():
        *parents, leaf = name.split("__")
        section: object = config
        for parent in parents:
            section = getattr(section, parent)
        assert hasattr(section, leaf), name
        setattr(section, leaf, value)


def test_a_sound_configuration_passes(config: Config) -> None:
    check(config, num_devices=0)
    check(config)


def test_what_is_odd_but_can_work_is_warned_about(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    apply(config, {"actor__kl_loss_coef": 0.02, "algorithm__kl_coef": 0.01})
    with caplog.at_level(logging.WARNING):
        check(config, num_devices=0)
    assert "the KL to the reference is penalised twice" in caplog.text


def test_all_problems_are_reported_together_and_numbered(config: Config) -> None:
    text = refusal(config, model__path="", trainer__loggers=["tensorbord"], actor__mini_batch_size=5)
    assert text.splitlines()[0] == "3 problems:"
    assert [line[:5] for line in text.splitlines()[1:]] == ["  1. ", "  2. ", "  3. "]
    for part in ("model.path is empty", "trainer.loggers holds tensorbord", "actor.mini_batch_size=5 does not divide"):
        assert part in text


def test_rules_that_need_an_algorithm_wait_until_it_exists(config: Config) -> None:
    text = refusal(config, algorithm__adv_estimator="grop", critic__path="model", rollout__tensor_parallel_size=4)
    assert text.splitlines()[0] == "2 problems:"
    assert "did you mean grpo?" in text and "more than the 2 workers" in text and "critic" not in text


def test_a_value_out_of_range_is_refused_here_too(config: Config) -> None:
    assert refusal(config, rollout__n=0) == "rollout.n is 0, but must be a number above 0."


def test_unknown_estimator_is_refused_with_the_names_there_are(config: Config) -> None:
    text = refusal(config, algorithm__adv_estimator="grop")
    assert "algorithm.adv_estimator=grop" in text
    assert "grpo" in text


def test_unknown_policy_loss_is_refused_with_the_names_there_are(config: Config) -> None:
    text = refusal(config, actor__policy_loss="pppo")
    assert "actor.policy_loss=pppo" in text
    assert "kl_cov, ppo, reinforce" in text


# --- models


def test_empty_model_path_is_refused(config: Config) -> None:
    assert refusal(config, model__path="").startswith("model.path is empty")


@pytest.mark.parametrize("path", ["./nowhere", "/nowhere", "a/b/c", "~/nowhere-at-all", "../nowhere", "data/nowhere"])
def test_local_model_path_that_does_not_exist_is_refused(config: Config, path: str) -> None:
    text = refusal(config, model__path=path)
    assert text.startswith(f"model.path is {path}, but there is no such folder")


@pytest.mark.parametrize("name", ["Qwen/Qwen3-0.6B", "gpt2"])
def test_hub_names_pass(config: Config, name: str) -> None:
    config.model.path = name
    check(config, num_devices=0)


def test_a_folder_without_a_model_is_refused(config: Config) -> None:
    assert refusal(config, model__path="data").startswith("model.path is data, a folder without config.json.")


def test_a_folder_without_a_tokenizer_is_refused(config: Config) -> None:
    assert refusal(config, model__tokenizer_path="data").startswith(
        "model.tokenizer_path is data, a folder without tokenizer_config.json."
    )


# --- data


def test_no_training_rows_is_refused_unless_only_validating(config: Config) -> None:
    assert refusal(config, data__train_files=[]).startswith("data.train_files is empty")
    config.trainer.val_only = True
    check(config, num_devices=0)


def test_a_missing_file_is_refused_and_its_neighbour_suggested(config: Config) -> None:
    text = refusal(config, data__train_files=["data/trian.parquet"])
    assert text == "data.train_files holds data/trian.parquet, which does not exist; did you mean data/train.parquet?"


def test_a_missing_folder_of_files_is_reported_with_the_path_searched(config: Config, tmp_path: Path) -> None:
    assert f"looked from {tmp_path}" in refusal(config, data__val_files=["nowhere/x.parquet"])


def test_missing_files_of_a_recipe_are_refused_with_the_command_that_makes_them(config: Config) -> None:
    config.trainer.prepare_command = "make train"
    remedy = "Run `make train`, which creates the files of the recipe; otherwise correct the path"
    assert remedy in refusal(config, model__path="outputs/arithmetic/warmstart/model")
    config.model.path = "gpt2"
    assert remedy in refusal(config, data__train_files=["outputs/arithmetic/data/train.parquet"])


def test_a_file_of_another_kind_is_refused(config: Config) -> None:
    assert "rows are read from .parquet and .jsonl files" in refusal(config, data__train_files=["data/notes.txt"])


@pytest.mark.parametrize("entry", ["hf:gsm8k", "hf:", "hf:gsm8k:", "hf:a:b:c:d"])
def test_a_dataset_without_a_split_is_refused(config: Config, entry: str) -> None:
    text = refusal(config, data__val_files=[entry])
    assert text.startswith(f"data.val_files: {entry} names no split of a dataset; expected hf:NAME:SPLIT or")


def test_a_dataset_without_the_package_that_reads_it_is_refused(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    text = refusal(config, data__train_files=["hf:openai/gsm8k:main:train"])
    assert "pip install 'verl-like[datasets]'. Or write the rows as parquet or jsonl files." in text


def test_every_training_file_has_a_weight_or_none_has(config: Config) -> None:
    text = refusal(config, data__train_weights=[2, 1])
    assert text.startswith(
        "data.train_weights has 2 numbers, but data.train_files names 1 files. Give a number for each"
    )


@pytest.mark.parametrize("weights", [[0], [-1], [float("inf")], [float("nan")], ["a"]])
def test_weights_are_numbers_above_zero(config: Config, weights: list[object]) -> None:
    text = refusal(config, data__train_weights=weights)
    assert text == f"data.train_weights is {weights!r}, but must be a list of numbers above 0."


@pytest.mark.parametrize("name", ["rows", "mine.py", "mine.txt:rows", ":rows", "package.module:rows"])
@pytest.mark.parametrize("option", ["custom_dataset", "sampler"])
def test_own_code_is_named_by_file_and_function(config: Config, option: str, name: str) -> None:
    text = refusal(config, **{f"data__{option}": name})
    also = "curriculum or " if option == "sampler" else ""
    assert text.startswith(f"data.{option} is {name!r}; expected {also}path/to/file.py:name.")


@pytest.mark.parametrize("option", ["custom_dataset", "sampler"])
def test_a_missing_file_of_own_code_is_refused(config: Config, tmp_path: Path, option: str) -> None:
    text = refusal(config, **{f"data__{option}": "mine.py:rows"})
    assert text.startswith(f"data.{option} is mine.py:rows, but there is no file mine.py (looked from {tmp_path})")


def test_entries_of_a_custom_dataset_need_be_no_files(config: Config, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def rows(entry): return []")
    config.data.custom_dataset, config.data.train_files = "mine.py:rows", ["easy"]
    check(config, num_devices=0)


@pytest.mark.parametrize("option", ["custom_dataset", "sampler"])
def test_arguments_of_no_own_code_are_refused(config: Config, option: str) -> None:
    text = refusal(config, **{f"data__{option}_kwargs": {"level": 1}})
    assert f"data.{option} does not name your own code, so nothing reads them" in text


def test_a_curriculum_takes_its_own_options_alone(config: Config) -> None:
    assert "data.sampler does not name your own code" in refusal(
        config, data__sampler="curriculum", data__sampler_kwargs={"low": 0.1}
    )


def test_options_of_a_curriculum_without_one_are_refused(config: Config) -> None:
    text = refusal(config, data__curriculum__low=0.1)
    assert text.startswith("data.curriculum is set, but data.sampler is '', so nothing reads it. Set data.sampler=curr")


def test_a_band_without_scores_is_refused(config: Config) -> None:
    text = refusal(config, data__sampler="curriculum", data__curriculum__low=0.9)
    assert text.startswith("data.curriculum.low is 0.9 and data.curriculum.high is 0.8, so no mean score lies between")


def test_a_curriculum_without_new_prompts_is_refused(config: Config) -> None:
    text = refusal(config, data__sampler="curriculum", data__curriculum__unseen_frac=0.0)
    assert text.startswith("data.curriculum.unseen_frac is 0, so only the prompts of the first batch would ever be tr")
    assert "expected a number above 0, up to 1. Set data.curriculum.unseen_frac=0.5" in text


def test_a_sampler_together_with_weights_is_refused(config: Config, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def order(prompts, seed, epoch): return []")
    text = refusal(config, data__sampler="mine.py:order", data__train_weights=[1.0])
    assert text.startswith("data.sampler is mine.py:order and data.train_weights is [1.0], but only one of them can")


@pytest.mark.parametrize(("option", "value"), [("test_freq", 5), ("val_only", True), ("best_metric", "val/x")])
def test_validation_options_without_rows_are_refused(config: Config, option: str, value: object) -> None:
    text = refusal(config, data__val_files=[], **{f"trainer__{option}": value})
    assert text.startswith(f"trainer.{option} is set, but data.val_files is empty")


def test_training_without_validation_rows_passes(config: Config) -> None:
    config.data.val_files = []
    check(config, num_devices=0)


def test_mini_batches_must_divide_the_batch_and_the_nearest_is_offered(config: Config) -> None:
    text = refusal(config, data__train_batch_size=48, actor__mini_batch_size=32)
    assert text.startswith("data.train_batch_size is 48 prompts, which actor.mini_batch_size=32 does not divide. ")
    assert "Set actor.mini_batch_size=24" in text


def test_a_mini_batch_larger_than_the_batch_is_refused(config: Config) -> None:
    assert "Set actor.mini_batch_size=8" in refusal(config, data__train_batch_size=8, actor__mini_batch_size=32)


def test_the_critics_mini_batch_counts_only_where_there_is_a_critic(config: Config) -> None:
    config.critic.mini_batch_size = 5
    check(config, num_devices=0)
    assert "critic.mini_batch_size=5" in refusal(config, algorithm__adv_estimator="gae")


def test_columns_that_the_first_rows_lack_are_refused(config: Config) -> None:
    Path("data/val.jsonl").write_text('{"prompt": "1+1="}\n')
    text = refusal(config, data__prompt_key="question", trainer__test_freq=1)
    assert text.splitlines() == [
        "2 problems:",
        "  1. data.prompt_key is 'question', but row 0 of data/train.parquet has no such column; it has ['answer', "
        "'prompt']. Set data.prompt_key to one of these, or add the column.",
        "  2. data.prompt_key is 'question', but row 0 of data/val.jsonl has no such column; it has ['prompt']. Set "
        "data.prompt_key to one of these, or add the column.",
    ]
    text = refusal(config, data__prompt_key="prompt")
    assert text.startswith("row 0 of data/val.jsonl has neither reward_model.ground_truth nor the column")
    apply(config, {"trainer__val_before_train": False, "trainer__test_freq": 0})
    check(config, num_devices=0)  # without validation nobody reads them


def test_first_rows_of_other_forms_are_left_to_their_readers(config: Config) -> None:
    Path("data/val.jsonl").write_text(json.dumps({"messages": "1", "completion": "1", "text": "1"}) + "\n")
    assert len(checks.problems(config, num_devices=0)) == 1
    assert checks.problems(config, num_devices=0, reads_prompts=False) == []


@pytest.mark.parametrize("command", ["sft", "dpo", "rm"])
def test_rules_say_nothing_of_options_that_a_command_does_not_read(config: Config, command: str) -> None:
    ignored: dict[str, object] = {
        "ref__path": "model",
        "algorithm__distill_coef": 0.5,
        "algorithm__filter_groups": True,
        "rollout__n": 1,
        "actor__mini_batch_size": 5,
        "critic__path": "model",
        "reward__judge__path": "none",
        "trainer__val_only": True,
    }
    apply(config, ignored)
    assert len(checks.problems(config, num_devices=0)) >= 4
    assert checks.problems(as_read(command, config), num_devices=0, reads_prompts=False) == []


def test_a_file_that_cannot_be_read_is_refused(config: Config) -> None:
    Path("data/train.parquet").write_text("no parquet")
    assert refusal(config).startswith("data file data/train.parquet cannot be read as parquet: ")


# --- algorithm


def test_the_rules_on_algorithms_are_checked_too(config: Config) -> None:
    assert refusal(config, rollout__n=1).startswith(
        "rollout.n is 1, but algorithm.adv_estimator=grpo compares siblings"
    )


# --- rewards


def test_a_missing_reward_file_is_refused(config: Config) -> None:
    assert refusal(config, reward__function="rewards/mine.py:score").startswith(
        "reward.function is rewards/mine.py:score, but there is no file rewards/mine.py"
    )
    text = refusal(config, reward__function="", reward__functions={"own": {"function": "rewards/mine.py:score"}})
    assert text.startswith("reward.functions.own.function is rewards/mine.py:score, but there is no file")


def test_one_function_and_several_are_not_both_named(config: Config) -> None:
    text = refusal(config, reward__function="gsm8k", reward__functions={"short": {"function": "length"}})
    assert text.startswith("reward.function is 'gsm8k' and reward.functions names ['short']; expected one of the two.")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("gsm8k", "reward.functions.a is 'gsm8k'; expected a mapping like"),
        ({"weight": 1.0}, "reward.functions.a is {'weight': 1.0}; expected a mapping like"),
        ({"function": "gsm8k", "wieght": 2}, "reward.functions.a has ['wieght']; expected function, weight, kwargs."),
        ({"function": "gsm8k", "weight": "much"}, "reward.functions.a.weight is 'much'; expected a finite number."),
        ({"function": "gsm8k", "weight": float("nan")}, "reward.functions.a.weight is nan; expected a finite number."),
        ({"function": 3}, "expected text as function and a mapping as kwargs."),
    ],
)
def test_an_entry_of_several_rewards_is_checked(config: Config, entry: object, message: str) -> None:
    assert message in refusal(config, reward__functions={"a": entry})


@pytest.mark.parametrize("name", ["", "a/b", "judge", "acc"])
def test_the_names_of_several_rewards_are_names_of_metrics(config: Config, name: str) -> None:
    assert f"reward.functions has the name {name!r}; expected one without slashes" in refusal(
        config, reward__functions={name: {"function": "gsm8k"}}
    )


@pytest.mark.parametrize("value", ["zero", "score", "score:", "score:x", "score:nan", "score:inf", "mask:1"])
def test_on_failure_is_one_of_three_things(config: Config, value: str) -> None:
    assert "must be mask, abort, or score:<number>" in refusal(config, reward__on_failure=value)


@pytest.mark.parametrize("value", ["mask", "abort", "score:0", "score:-1.5"])
def test_on_failure_may_be_these(config: Config, value: str) -> None:
    apply(config, {"reward__on_failure": value})
    check(config, num_devices=0)


@pytest.mark.parametrize("option", ["reward__model__path", "reward__judge__path"])
def test_a_missing_scoring_model_is_refused(config: Config, option: str) -> None:
    assert "there is no such folder" in refusal(config, **{option: "./nowhere"})


def test_a_judge_has_whole_engines(config: Config) -> None:
    text = refusal(
        config, reward__judge__path="model", reward__judge__num_workers=3, reward__judge__tensor_parallel_size=2
    )
    assert text.startswith(
        "reward.judge.num_workers is 3, which is not a multiple of reward.judge.tensor_parallel_size=2."
    )
    config.reward.judge.num_workers = 2
    assert "generates on one rank at a time" in refusal(config, reward__judge__backend="hf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward__judge__score_pattern": "("}, "reward.judge: "),
        ({"reward__judge__max_score": 5.0}, "reward.judge: "),
        ({"reward__judge__template": "{{ prompt"}, "reward.judge: "),
    ],
)
def test_a_judges_template_pattern_and_scale_are_checked(
    config: Config, changes: dict[str, object], message: str
) -> None:
    assert refusal(config, reward__judge__path="model", **changes).startswith(message)


def test_a_judge_has_enough_context_for_its_question(config: Config) -> None:
    text = refusal(config, reward__judge__path="model", reward__judge__max_tokens=512, reward__judge__max_model_len=512)
    assert "leaves no tokens for the prompt" in text


@pytest.mark.parametrize("placement", ["colocated", "own"])
def test_greedy_baselines_are_scored_by_a_reward_model_wherever_it_is(config: Config, placement: str) -> None:
    apply(
        config,
        {"reward__model__path": "model", "reward__model__placement": placement, "algorithm__adv_estimator": "remax"},
    )
    check(config, num_devices=0)


def test_models_with_their_own_gpus_are_counted(config: Config) -> None:
    changes = {"cluster__device": "cuda", "reward__judge__path": "model", "reward__judge__num_workers": 2}
    text = refusal(config, num_devices=3, cluster__workers_per_node=2, **changes)
    assert (
        "cluster requests 4 GPUs (num_nodes=1 x workers_per_node=2 + reward.judge.num_workers=2), but 3 exist." in text
    )
    assert "Set cluster.workers_per_node=1," in text
    text = refusal(config, num_devices=4, cluster__workers_per_node=0, **changes)
    assert "uses every GPU, but reward.judge.num_workers need" in text and "Set cluster.workers_per_node=2." in text


# --- rollout


def test_an_engine_step_shorter_than_a_row_is_refused(config: Config) -> None:
    text = refusal(
        config,
        rollout__max_num_batched_tokens=100,
        rollout__max_num_seqs=64,
        data__max_prompt_length=60,
        data__max_response_length=64,
    )
    assert text == (
        "rollout.max_num_batched_tokens is 100, but data.max_prompt_length + data.max_response_length is 124, and "
        "vLLM on CPU cannot split a row. Set rollout.max_num_batched_tokens=124 or more, or shorten the rows."
    )


def test_a_gpu_takes_a_row_in_several_engine_steps(config: Config) -> None:
    apply(config, {"cluster__device": "cuda", "data__max_response_length": 100_000, "cluster__workers_per_node": 1})
    check(config, num_devices=1)


def test_an_engine_step_shorter_than_its_sequences_is_refused(config: Config) -> None:
    text = refusal(config, rollout__max_num_batched_tokens=1500, rollout__max_num_seqs=2000)
    assert "rollout.max_num_seqs=2000 sequences may each need a token" in text
    assert text.endswith("Set rollout.max_num_seqs=1500 or less.")


def test_tensor_parallel_beyond_the_ranks_is_refused(config: Config) -> None:
    text = refusal(config, rollout__tensor_parallel_size=4)
    assert "rollout.tensor_parallel_size is 4, which is more than the 2 workers of a node." in text


def test_tensor_parallel_that_does_not_divide_the_ranks_is_refused(config: Config) -> None:
    text = refusal(config, rollout__tensor_parallel_size=2, cluster__workers_per_node=3)
    assert "which does not divide the 3 workers of a node" in text


def test_groups_of_ranks_that_do_not_divide_all_are_refused(config: Config) -> None:
    text = refusal(config, actor__fsdp__shard_size="2", cluster__workers_per_node=3)
    assert "actor.fsdp.shard_size is 2, which does not divide the 3 workers. Set it to a divisor of 3" in text
    config.cluster.workers_per_node = 2
    check(config, num_devices=0)
    with pytest.raises(ValueError, match="does not divide the 3 workers"):
        check_devices(config, world_size=3, device="cpu", cores=4)


def test_shared_sequences_need_ranks_that_divide_and_packed_rows(config: Config) -> None:
    text = refusal(config, critic__sequence_parallel_size=2, cluster__workers_per_node=3)
    assert "critic.sequence_parallel_size is 2, which does not divide the 3 workers. Set it to a divisor of 3." in text
    with pytest.raises(ValueError, match=r"critic.sequence_parallel_size is 2, which does not divide the 1 worker"):
        check_devices(config, world_size=1, device="cpu", cores=4)
    text = refusal(config, cluster__workers_per_node=2, model__remove_padding=False)
    assert "critic.sequence_parallel_size cuts packed rows, but model.remove_padding is false" in text


def test_tensor_parallel_is_held_against_the_gpus_that_are_there(config: Config) -> None:
    text = refusal(
        config, num_devices=6, cluster__device="auto", cluster__workers_per_node=0, rollout__tensor_parallel_size=4
    )
    assert "does not divide the 6 workers" in text


def test_tensor_parallel_with_the_hf_backend_is_refused(config: Config) -> None:
    assert "rollout.backend=hf generates on one rank" in refusal(
        config, rollout__tensor_parallel_size=2, rollout__backend="hf"
    )


def test_started_workers_are_checked_once_more(config: Config) -> None:
    config.rollout.tensor_parallel_size = 2
    check_devices(config, world_size=4, device="cuda", cores=8)
    with pytest.raises(ValueError, match="does not divide the 3 workers"):
        check_devices(config, world_size=3, device="cuda", cores=8)
    config.cluster.num_nodes = 2
    with pytest.raises(ValueError, match="more than the 1 worker of a node"):
        check_devices(config, world_size=2, device="cuda", cores=8)


def test_a_joined_cluster_without_gpus_is_checked_for_cpus(config: Config) -> None:
    apply(config, {"cluster__address": "auto", "cluster__device": "auto", "rollout__max_num_batched_tokens": 900})
    check(config)
    check_devices(config, world_size=2, device="cuda", cores=8)
    config.actor.optim.offload, config.cluster.threads_per_worker = True, 5
    with pytest.raises(Refused) as caught:
        check_devices(config, world_size=2, device="cpu", cores=8)
    assert [problem.split(" is ")[0] for problem in caught.value.problems] == [
        "rollout.max_num_batched_tokens",
        "actor.optim.offload",
        "cluster.threads_per_worker",
    ]
    with pytest.raises(Refused, match="which applies to workers on CPU, but the workers run on GPUs"):
        check_devices(config, world_size=2, device="cuda", cores=8)


def test_greedy_validation_repeated_is_refused(config: Config) -> None:
    text = refusal(config, rollout__val__temperature=0.0, rollout__val__n=4)
    assert "all 4 responses would be the same" in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("max_num_sequences", "which vLLM's engine does not accept; did you mean max_num_seqs?"),
        ("max_num_seqs", "which has its own option. Set rollout.max_num_seqs instead."),
        ("load_format", "which the vLLM backend must set itself. Remove it."),
        ("disable_log_stats", "which the vLLM backend must set itself. Remove it."),
    ],
)
def test_an_argument_that_the_engine_cannot_have_is_known_without_it(config: Config, name: str, expected: str) -> None:
    assert refusal(config, rollout__engine_kwargs={name: 1}) == f"rollout.engine_kwargs has {name!r}, {expected}"


def test_an_argument_that_the_engine_takes_passes_and_the_other_backend_takes_none(config: Config) -> None:
    config.rollout.engine_kwargs = {"block_size": 16}
    check(config)
    assert "block_size, but rollout.backend=hf takes none" in refusal(config, rollout__backend="hf")


# --- cluster


def test_many_more_workers_than_cores_are_refused(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_like.checks.cluster.usable_cores", lambda: 2)
    config.data.train_batch_size = config.actor.mini_batch_size = 64
    assert refusal(config, cluster__workers_per_node=64) == (
        "cluster.workers_per_node is 64, but the workers run on CPU, and this machine has 2 cores for them. Set "
        "cluster.workers_per_node=2, or 0 for as many as fit."
    )
    config.cluster.workers_per_node = 8
    check(config, num_devices=0)  # for the layout of a larger machine
    monkeypatch.setattr("verl_like.checks.cluster.usable_cores", lambda: 64)
    config.cluster.workers_per_node = 64
    check(config, num_devices=0)


def test_cuda_without_a_gpu_is_refused(config: Config) -> None:
    assert refusal(config, cluster__device="cuda").startswith("cluster.device is cuda, but no GPU was found.")


def test_more_gpus_than_exist_are_refused(config: Config) -> None:
    text = refusal(config, num_devices=4, cluster__device="cuda", cluster__workers_per_node=8)
    assert text.startswith(
        "cluster requests 8 GPUs (num_nodes=1 x workers_per_node=8), but 4 exist. Set cluster.workers_per_node=4"
    )


def test_a_cluster_yet_to_be_joined_is_not_held_against_this_machine(config: Config) -> None:
    apply(
        config,
        {
            "cluster__device": "cuda",
            "cluster__address": "auto",
            "cluster__num_nodes": 4,
            "cluster__workers_per_node": 8,
        },
    )
    check(config)


def test_several_nodes_without_a_cluster_are_refused(config: Config) -> None:
    assert refusal(config, cluster__num_nodes=2).startswith("cluster.num_nodes is 2, but cluster.address is empty")


@pytest.mark.parametrize(
    "option",
    [
        "actor.fsdp.offload_params",
        "critic.fsdp.offload_params",
        "ref.fsdp.offload_params",
        "reward.model.fsdp.offload_params",
        "actor.optim.offload",
        "critic.optim.offload",
        "actor.fsdp.cpu_offload",
        "ref.fsdp.cpu_offload",
    ],
)
def test_offload_on_cpu_is_refused(config: Config, option: str) -> None:
    assert refusal(config, **{option.replace(".", "__"): True}).startswith(
        f"{option} is true, but the workers run on CPU"
    )


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("critic.fsdp.offload_params", True, "critic.fsdp.offload_params would have no effect"),
        ("critic.optim.offload", True, "critic.optim.offload would have no effect"),
        ("critic.fsdp.shard_size", "1", "critic.fsdp.shard_size=1 gives each rank a whole replica"),
    ],
)
def test_what_is_on_the_host_anyway_is_not_moved_there(config: Config, option: str, value: object, why: str) -> None:
    text = refusal(
        config,
        num_devices=2,
        cluster__device="cuda",
        critic__fsdp__cpu_offload=True,
        **{option.replace(".", "__"): value},
    )
    assert why in text and "critic.fsdp.cpu_offload" in text


def test_a_kernel_of_packed_rows_without_packing_is_refused(config: Config) -> None:
    assert "model.remove_padding is false" in refusal(config, model__attention="sdpa", model__remove_padding=False)


def test_fused_kernels_without_a_gpu_or_not_installed_or_compiled_too_are_refused(config: Config) -> None:
    assert "model.kernels is liger, which needs a GPU" in refusal(config, model__kernels="liger")
    on_gpu = {"num_devices": 2, "cluster__device": "cuda", "model__kernels": "liger"}
    if importlib.util.find_spec("liger_kernel") is None:
        assert "liger-kernel is not installed" in refusal(config, **on_gpu)
    assert "actor.compile_layers compiles the layers" in refusal(config, **on_gpu, actor__compile_layers="true")


def test_compiled_layers_without_packing_are_refused(config: Config) -> None:
    text = refusal(config, actor__compile_layers="true", model__remove_padding=False)
    assert text.startswith("actor.compile_layers leaves the attention of packed rows as it is")


@pytest.mark.parametrize("kernel", ["flash3", "flash", "varlen"])
def test_a_gpu_kernel_on_cpu_is_refused(config: Config, kernel: str) -> None:
    assert f"model.attention is {kernel}, which needs a GPU" in refusal(config, model__attention=kernel)


@pytest.mark.parametrize(("kernel", "module"), [("flash", "flash_attn"), ("flash3", "flash_attn_interface")])
def test_flash_attention_that_is_not_installed_is_refused(config: Config, kernel: str, module: str) -> None:
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed here")
    text = refusal(config, num_devices=2, cluster__device="cuda", model__attention=kernel)
    assert f"model.attention is {kernel}, but {module.replace('_', '-')} is not installed" in text


@pytest.mark.parametrize("section", ["actor", "ref", "critic", "reward.model"])
def test_a_kernel_of_16_bits_with_32_bits_is_refused(config: Config, section: str) -> None:
    sharding = {f"{section.replace('.', '__')}__fsdp__param_dtype": "float32"}
    text = refusal(config, num_devices=2, cluster__device="cuda", model__attention="varlen", **sharding)
    assert f"model.attention is varlen, which needs 16-bit tensors, but {section}.fsdp.param_dtype is float32" in text


# --- trainer


def test_an_unknown_logger_is_refused(config: Config) -> None:
    assert refusal(config, trainer__loggers=["tensorbord"]).endswith("did you mean tensorboard?")


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_an_experiment_name_that_is_no_folder_name_is_refused(config: Config, name: str) -> None:
    assert refusal(config, trainer__experiment_name=name).startswith(f"trainer.experiment_name is {name!r}")


@pytest.mark.parametrize("name", ["x" * 300, "two\nlines"])
def test_an_experiment_name_that_no_file_system_takes_is_refused(config: Config, name: str) -> None:
    text = refusal(config, trainer__experiment_name=name)
    assert "must be printable text, at most 200 bytes. Shorten it." in text and len(text) < 200


def test_an_experiment_name_that_chains_urls_is_refused_with_a_remote_folder(config: Config) -> None:
    apply(config, {"trainer__experiment_name": "lr::1"})
    check(config, num_devices=2)
    text = refusal(config, trainer__remote_dir="file:///mnt/runs")
    assert text.startswith("trainer.experiment_name is 'lr::1', but must be without :: where trainer.remote_dir is set")
    assert text.endswith("Set trainer.experiment_name=lr-1.")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file://rel/dir", "but must be file:// and an absolute folder"),
        ("file://", "but must be file:// and an absolute folder"),
        ("file:///", "but must name a folder on the disk. Give a folder like file:///mnt/runs."),
        ("file://{here}/outputs", "but must not overlap the run's folder"),
        ("file://{here}/data/../outputs/", "but must not overlap the run's folder"),
        ("file://{here}/outputs/run", "but must not overlap the run's folder"),
        ("file://{here}/outputs/run/copy", "but must not overlap the run's folder"),
        ("local://{here}/outputs/run/copy", "but must not overlap the run's folder"),
    ],
)
def test_a_remote_folder_that_holds_no_copy_apart_is_refused(config: Config, url: str, message: str) -> None:
    url = url.format(here=Path.cwd())
    text = refusal(config, trainer__remote_dir=url, trainer__output_dir="outputs", trainer__experiment_name="run")
    assert text.startswith(f"trainer.remote_dir is {url}, {message}")


def test_a_remote_folder_that_would_hold_the_runs_own_in_its_copy_is_refused(config: Config) -> None:
    changes = {"trainer__output_dir": "x/run/deep", "trainer__experiment_name": "run"}
    assert "must not overlap" in refusal(config, trainer__remote_dir=f"file://{Path.cwd()}/x", **changes)


@pytest.mark.parametrize("place", ["elsewhere", "outputs/copies", "outputs-2"])
def test_a_remote_folder_next_to_the_runs_own_is_accepted(config: Config, place: str) -> None:
    apply(config, {"trainer__remote_dir": f"file://{Path.cwd()}/{place}", "trainer__experiment_name": "run"})
    check(config, num_devices=2)


def test_a_run_folder_below_a_file_is_refused(config: Config) -> None:
    assert "because data/notes.txt is a file" in refusal(config, trainer__output_dir="data/notes.txt").replace(
        f"{Path.cwd()}/", ""
    )


def test_resume_from_a_folder_that_is_not_there_is_refused(config: Config) -> None:
    assert refusal(config, trainer__resume="atuo").endswith("did you mean auto?")
    assert "no such folder exists" in refusal(config, trainer__resume="outputs/x/checkpoints/step_3")


def test_every_rule_is_in_the_list() -> None:
    rules = [
        entry
        for module in (
            checks,
            cluster,
            expert_parallel,
            experts,
            kernels,
            lora,
            models,
            pictures,
            pools,
            sampling_mask,
            validation,
        )
        for entry in vars(module).values()
        if inspect.isfunction(entry)
        and list(inspect.signature(entry).parameters) == ["config", "gpus"]
        and entry.__annotations__["return"] == "Iterator[str]"
    ]
    assert rules
    assert set(rules) == set(checks.RULES)


def test_a_restart_after_a_stall_needs_restarts(config: Config) -> None:
    text = refusal(config, trainer__on_stall="restart")
    assert "trainer.max_restarts=0 allows none. Set trainer.max_restarts=3" in text
    accepted = {"trainer__on_stall": "restart", "trainer__max_restarts": 1}
    apply(config, accepted)
    check(config, num_devices=2)


def test_runs_that_repeat_bit_for_bit_are_dealt_in_advance(config: Config) -> None:
    text = refusal(config, rollout__dealing="queue", trainer__deterministic=True)
    assert "Set rollout.dealing=ahead, or trainer.deterministic=false" in text
