"""TRL's trainers in Python: the configuration that arguments, rows and objects make, and what is refused."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import verl_like.trl
from tests._peer_modules import peer_module
from tests.unit.test_imports import HEAVY, run
from verl_like.trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    RewardConfig,
    RewardTrainer,
    SFTConfig,
    SFTTrainer,
)
from verl_like.trl.refused import ATTRIBUTES
from verl_like.trl.results import TrainerState
from verl_like.trl.tokenizers import tokenizer_path

PROMPTS = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]
ANSWERS = [{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}]
PAIRS = [{"prompt": "a", "chosen": "b", "rejected": "c"}]
CHAT = [{"role": "user", "content": "a"}]
REPLY = {"role": "assistant", "content": "b"}


@dataclass
class LoraConfig:
    """The fields of peft's that matter here."""

    r: int = 8
    lora_alpha: int = 8
    target_modules: Any = None
    lora_dropout: float = 0.0
    use_dora: bool = False
    rank_pattern: dict[str, int] = field(default_factory=dict)


def length(completions: list[str], **columns: Any) -> list[float]:
    return [float(len(completion)) for completion in completions]


def test_an_argument_shows_the_default_of_trl_until_it_is_set() -> None:
    args = GRPOConfig("out")
    assert (args.output_dir, args.learning_rate, args.num_generations) == ("out", 1e-6, 8)
    args.learning_rate = 1e-5
    assert args.learning_rate == 1e-5 and args.to_dict()["learning_rate"] == 1e-5
    assert repr(args) == "GRPOConfig(output_dir='out', learning_rate=1e-05)"


@pytest.mark.parametrize("kind", [SFTConfig, DPOConfig, GRPOConfig, RewardConfig])
def test_an_unknown_argument_is_refused_with_the_right_name(kind: Any) -> None:
    with pytest.raises(TypeError, match=f"{kind.name} has no argument lerning_rate; did you mean learning_rate"):
        kind("out", lerning_rate=1e-5)
    with pytest.raises(AttributeError, match="did you mean max_steps"):
        kind("out").max_step = 3
    with pytest.raises(AttributeError, match=r"no argument nothing_alike; see docs/trl\.md"):
        _ = kind("out").nothing_alike


def test_a_trainer_without_args_names_its_folder_after_the_model() -> None:
    config = SFTTrainer("Qwen/Qwen3-0.6B", train_dataset=ANSWERS).config
    assert (config.trainer.output_dir, config.trainer.experiment_name) == (".", "Qwen3-0.6B-SFT")
    assert (config.model.path, config.actor.optim.lr, config.trainer.total_epochs) == ("Qwen/Qwen3-0.6B", 2e-5, 3)


@pytest.mark.parametrize("dataset", [PROMPTS, pa.Table.from_pylist(PROMPTS)], ids=["list", "table"])
def test_rows_in_memory_are_passed_on_with_names_for_their_columns(dataset: Any) -> None:
    data = GRPOTrainer("m", length, GRPOConfig("out"), dataset).config.data
    assert data.train_files is dataset
    assert (data.prompt_key, data.answer_key, data.apply_chat_template) == ("prompt", "", False)


def test_rows_of_pandas_and_of_datasets_are_read() -> None:
    pandas, datasets = peer_module("pandas"), peer_module("datasets")
    for dataset in (pandas.DataFrame(PROMPTS), datasets.Dataset.from_list(PROMPTS)):
        assert GRPOTrainer("m", length, GRPOConfig("out"), dataset).config.data.train_files is dataset
    with pytest.raises(ValueError, match="has the splits train, test"):
        GRPOTrainer("m", length, GRPOConfig("out"), datasets.DatasetDict({"train": dataset, "test": dataset}))


def test_names_of_files_are_read_for_their_columns(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ANSWERS), tmp_path / "rows.parquet")
    for given in (str(tmp_path / "rows.parquet"), [tmp_path / "rows.parquet"]):
        data = SFTTrainer("m", SFTConfig("out"), train_dataset=given).config.data
        assert (data.train_files, data.answer_key) == (given, "")


def test_chats_use_the_template() -> None:
    assert SFTTrainer(
        "m", SFTConfig("out"), train_dataset=[{"prompt": CHAT, "completion": [REPLY]}]
    ).config.data.apply_chat_template
    assert not SFTTrainer("m", SFTConfig("out"), train_dataset=[{"text": "a"}]).config.data.apply_chat_template
    assert DPOTrainer(
        "m", None, DPOConfig("out"), train_dataset=[{"chosen": [*CHAT, REPLY], "rejected": [*CHAT, REPLY]}]
    ).config.data.apply_chat_template
    assert not RewardTrainer("m", RewardConfig("out"), train_dataset=PAIRS).config.data.apply_chat_template


def test_the_tokens_that_are_learnt_are_those_of_trl() -> None:
    def learnt(rows: list[Any], **options: Any) -> str:
        return SFTTrainer("m", SFTConfig("out", **options), train_dataset=rows).config.sft.loss_on

    chats = [{"messages": [*CHAT, REPLY]}]
    assert learnt(ANSWERS) == "assistant" and learnt(ANSWERS, completion_only_loss=False) == "all"
    assert learnt(chats) == "all" and learnt(chats, assistant_only_loss=True) == "assistant"
    assert learnt([{"text": "a"}]) == "all"


@pytest.mark.parametrize(
    ("trainer", "dataset", "message"),
    [
        (SFTTrainer, [{"conversations": [REPLY]}], "lacks completion and prompt; it has conversations"),
        (SFTTrainer, PROMPTS, "Expected the columns prompt and completion, or messages, or text"),
        (DPOTrainer, PROMPTS, "lacks chosen and rejected"),
        (RewardTrainer, [], "train_dataset has no rows"),
        (SFTTrainer, [1], "row 0 of train_dataset is a int"),
        (SFTTrainer, 5, "train_dataset is a int; expected a datasets.Dataset"),
        (SFTTrainer, None, "SFTTrainer needs rows"),
        (SFTTrainer, {"train": ANSWERS}, "has the splits train; expected one of them"),
    ],
)
def test_a_data_set_of_another_form_is_refused(trainer: Any, dataset: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer("m", train_dataset=dataset)


def test_functions_and_a_reward_model_keep_their_weights() -> None:
    args = GRPOConfig("out", reward_weights=[1.0, 2.0, 0.5, 3.0])
    reward = GRPOTrainer("m", [length, "models/rm", length, partial(length)], args, PROMPTS).config.reward
    assert {name: entry["weight"] for name, entry in reward.functions.items()} == {
        "length": 1.0,
        "length_2": 0.5,
        "partial": 3.0,
    }
    assert reward.functions["length"]["function"] is length
    assert (reward.model.path, reward.model.weight) == ("models/rm", 2.0)


@pytest.mark.parametrize(
    ("reward_funcs", "weights", "message"),
    [
        (None, None, "reward_funcs is empty"),
        ([length], [1.0, 2.0], "reward_weights has 2 values for 1 reward_funcs"),
        (["a", "b"], None, "expected one at most"),
        ([3], None, "reward_funcs has a int"),
    ],
)
def test_rewards_that_cannot_work_are_refused(reward_funcs: Any, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GRPOTrainer("m", reward_funcs, GRPOConfig("out", reward_weights=weights), PROMPTS)


@pytest.mark.parametrize(
    ("targets", "expected"), [(None, ["q_proj", "v_proj"]), ("all-linear", ["all-linear"]), ({"b", "a"}, ["a", "b"])]
)
def test_an_adapter_of_peft_becomes_options(targets: Any, expected: list[str]) -> None:
    peft_config = LoraConfig(r=4, lora_alpha=32, target_modules=targets, lora_dropout=0.1)
    lora = SFTTrainer("m", SFTConfig("out"), train_dataset=ANSWERS, peft_config=peft_config).config.model.lora
    assert (lora.rank, lora.alpha, lora.targets) == (4, 32, expected)


def test_the_class_of_peft_is_read() -> None:
    peft = pytest.importorskip("peft")
    lora = SFTTrainer("m", SFTConfig("out"), train_dataset=ANSWERS, peft_config=peft.LoraConfig(r=4)).config.model.lora
    assert (lora.rank, lora.alpha, lora.targets) == (4, 8, ["q_proj", "v_proj"])


@pytest.mark.parametrize(
    ("peft_config", "message"),
    [
        (LoraConfig(use_dora=True), "peft_config sets use_dora=True"),
        (LoraConfig(rank_pattern={"q": 4}), "peft_config sets rank_pattern"),
        (LoraConfig(target_modules=".*proj"), "expected all-linear, or a list of names"),
        (3, "peft_config is a int; expected peft's LoraConfig"),
    ],
)
def test_adapters_that_have_no_equivalent_are_refused(peft_config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SFTTrainer("m", SFTConfig("out"), train_dataset=ANSWERS, peft_config=peft_config)


def test_the_reference_of_dpo_is_named() -> None:
    assert DPOTrainer("m", "reference", DPOConfig("out"), train_dataset=PAIRS).config.dpo.ref_path == "reference"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"callbacks": [1]}, ValueError, "callbacks has no equivalent here. train.. returns the metrics"),
        ({"tokenizer": 1}, TypeError, "no argument tokenizer; did you mean processing_class"),
        ({"eval_data": 1}, TypeError, "no argument eval_data; did you mean eval_dataset"),
        ({"model": 3}, ValueError, "model is a int; expected a folder or hub name"),
        ({"args": 3}, TypeError, "args is a int; expected a SFTConfig"),
        ({"args": GRPOConfig("out")}, TypeError, "args is a GRPOConfig; expected a SFTConfig"),
        ({"args": SFTConfig("out", eval_strategy="steps")}, ValueError, "there is no eval_dataset"),
        ({"args": SFTConfig("out", optim=object())}, ValueError, "optim is a object, but a run's config.yaml has only"),
        ({"args": SFTConfig("out", optim="sgd", learning_rate=-1)}, ValueError, "2 problems"),
    ],
)
def test_arguments_of_a_trainer_that_cannot_work_are_refused(
    arguments: dict[str, Any], kind: Any, message: str
) -> None:
    with pytest.raises(kind, match=message):
        SFTTrainer(**{"model": "m", "train_dataset": ANSWERS, **arguments})


def test_arguments_of_none_ask_for_nothing() -> None:
    nothing = {"callbacks": None, "quantization_config": None, "optimizers": (None, None), "data_collator": None}
    assert SFTTrainer("m", SFTConfig("out"), train_dataset=ANSWERS, **nothing).config.model.path == "m"


def test_what_has_no_effect_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        SFTTrainer("m", SFTConfig("out", logging_steps=5, packing=True, learning_rate=1e-5), train_dataset=ANSWERS)
    [record] = caplog.records
    assert "logging_steps (metrics of every step are written), packing (rows are always packed" in record.getMessage()
    assert "learning_rate" not in record.getMessage()


def test_before_training_there_is_no_model_and_no_validation(tmp_path: Path) -> None:
    trainer = SFTTrainer("m", SFTConfig(tmp_path / "run"), train_dataset=ANSWERS)
    with pytest.raises(ValueError, match="there is no model in"):
        trainer.save_model(tmp_path / "model")
    with pytest.raises(ValueError, match="SFTTrainer has no validation"):
        trainer.evaluate()
    with pytest.raises(ValueError, match="nothing is pushed to the hub"):
        trainer.push_to_hub()


def test_an_evaluation_has_the_name_of_the_loss_in_trl(tmp_path: Path) -> None:
    trainer = SFTTrainer("m", SFTConfig(tmp_path / "run"), train_dataset=ANSWERS)
    trainer.state = TrainerState(2, [{"step": 1, "val/loss": 0.5}, {"step": 2, "sft/loss": 0.1}])
    assert trainer.evaluate() == {"val/loss": 0.5, "eval_loss": 0.5}
    for arguments in ({"eval_dataset": ANSWERS}, {"metric_key_prefix": "test"}, {"ignore_keys": ["a"]}):
        with pytest.raises(ValueError, match="Pass eval_dataset to the trainer, and call"):
            trainer.evaluate(**arguments)


def test_metrics_are_logged_and_written_under_the_names_of_transformers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = SFTTrainer("m", SFTConfig(tmp_path / "run"), train_dataset=ANSWERS)
    with caplog.at_level(logging.INFO):
        trainer.log_metrics("train", {"train_loss": 0.5, "a": 1})
    assert "train metrics: train_loss=0.5, a=1" in caplog.text
    trainer.save_metrics("train", {"train_loss": 0.5, "a": 1})
    trainer.save_metrics("eval", {"eval_loss": 0.25, "a": 2})
    trainer.save_metrics("test", {"b": 3}, combined=False)
    read = {path.name: json.loads(path.read_text()) for path in (tmp_path / "run").iterdir()}
    assert read == {
        "train_results.json": {"train_loss": 0.5, "a": 1},
        "eval_results.json": {"eval_loss": 0.25, "a": 2},
        "test_results.json": {"b": 3},
        "all_results.json": {"train_loss": 0.5, "a": 2, "eval_loss": 0.25},
    }
    assert trainer.is_world_process_zero()


def test_what_a_trainer_lacks_is_an_error_that_says_what_to_use() -> None:
    trainer = SFTTrainer("m", SFTConfig("out"), train_dataset=ANSWERS)
    expected = {name: f". {instead}" for name, instead in ATTRIBUTES.items()}
    for name, message in {**expected, "modle": ". docs/trl.md lists its methods."}.items():
        with pytest.raises(AttributeError) as error:
            getattr(trainer, name)
        assert str(error.value) == f"SFTTrainer has no {name}{message}"


def test_every_public_method_of_transformers_is_here_or_has_a_substitute() -> None:
    """Except what its own loop calls."""
    transformers = pytest.importorskip("transformers")
    public = {name for name in dir(transformers.Trainer) if not name.startswith("_")}
    unnamed = public - set(dir(SFTTrainer)) - set(ATTRIBUTES)
    assert {name for name in unnamed if not name.startswith(("get_", "create_", "compute_"))} == {
        *("autocast_smart_context_manager", "call_model_init", "floating_point_ops", "is_local_process_zero"),
        *("loss_is_scaled_for_ga", "metrics_format", "num_examples", "set_initial_training_values", "store_flos"),
    }


class Tokenizer:
    """Writes its only setting, as tokenizers of transformers write theirs."""

    def __init__(self, pad: str) -> None:
        self.pad = pad

    def save_pretrained(self, save_directory: str) -> None:
        Path(save_directory, "tokenizer_config.json").write_text(self.pad)


def test_a_tokenizer_is_stored_under_a_name_of_its_content(tmp_path: Path) -> None:
    first = tokenizer_path(Tokenizer("a"), tmp_path)
    assert Path(first, "tokenizer_config.json").read_text() == "a"
    assert tokenizer_path(Tokenizer("a"), tmp_path) == first != tokenizer_path(Tokenizer("b"), tmp_path)
    assert tokenizer_path("folder", tmp_path) == "folder"
    with pytest.raises(ValueError, match="processing_class is a int"):
        tokenizer_path(3, tmp_path)


def test_other_names_are_those_of_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ModuleType("trl")
    vars(installed).update(get_peft_config=length, KTOTrainer=object)
    monkeypatch.setitem(sys.modules, "trl", installed)
    assert verl_like.trl.get_peft_config is length
    with pytest.raises(AttributeError, match="has no KTOTrainer; expected a trainer among"):
        _ = verl_like.trl.KTOTrainer
    with pytest.raises(AttributeError, match="not get_anything, which an installed TRL lacks too"):
        _ = verl_like.trl.get_anything


@pytest.mark.processes
def test_importing_the_trainers_loads_nothing_heavy() -> None:
    loaded = run("import verl_like.trl, sys; print(*sys.modules)").split()
    assert not {name for name in HEAVY if name in loaded}


def test_rows_that_can_be_read_only_once_are_refused() -> None:
    with pytest.raises(ValueError, match="train_dataset is a generator, which gives its rows once"):
        SFTTrainer("m", SFTConfig("out"), train_dataset=(row for row in ANSWERS))


def test_numbers_of_numpy_are_arguments() -> None:
    config = SFTTrainer("m", SFTConfig("out", learning_rate=np.float64(0.5)), train_dataset=ANSWERS).config
    assert config.actor.optim.lr == 0.5
    weighed = GRPOTrainer("m", [length, length], GRPOConfig("out", reward_weights=np.array([1.0, 2.0])), PROMPTS).config
    assert [entry["weight"] for entry in weighed.reward.functions.values()] == [1.0, 2.0]


def test_the_third_argument_is_the_data_collator_as_in_trl() -> None:
    with pytest.raises(ValueError, match="data_collator has no equivalent here"):
        SFTTrainer("m", SFTConfig("out"), print, ANSWERS)


def test_an_object_of_trl_keeps_its_sizes() -> None:
    trl = peer_module("trl")
    given = trl.GRPOConfig(
        "out", use_cpu=True, per_device_train_batch_size=8, gradient_accumulation_steps=4, num_generations=4
    )
    config = GRPOTrainer("m", length, given, PROMPTS).config
    assert (config.data.train_batch_size, config.actor.mini_batch_size) == (8, 8)

    class Longer(trl.GRPOConfig):  # type: ignore[misc,name-defined]
        pass

    assert GRPOTrainer("m", length, Longer("out", use_cpu=True), PROMPTS).config.data.train_batch_size == 1
