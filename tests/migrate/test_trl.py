"""The translation of TRL's arguments in Python."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests._peer_modules import peer_module
from verl_like.config.compose import read
from verl_like.config.options import option_at
from verl_like_migrate.migration import settings_of
from verl_like_migrate.peers import INTERFACES
from verl_like_migrate.tables import table
from verl_like_migrate.translation import CONVERTERS, Translation, translate

CORRECTION = "algorithm.rollout_correction"
CONTEXT = ("num_devices", "num_rows")  # what a trainer adds to the arguments


def of(interface: str, **arguments: Any) -> Translation:
    return translate(table(f"trl_{interface}"), arguments)


def ours(interface: str, **arguments: Any) -> dict[str, Any]:
    """Return the options that follow from arguments and defaults."""
    found = of(interface, **arguments)
    assert found.problems == []
    return {**found.defaults, **found.settings}


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_name_of_a_configuration_has_an_entry_and_every_entry_is_here(interface: str) -> None:
    known = table(interface)
    shown = {**known.defaults, **known.unset}
    assert [name for name in shown if known.entry(name) is None] == []
    entries = [*known.exact.values(), *known.patterns]
    assert [entry.to for entry in entries if entry.kind == "renamed" and option_at(entry.to) is None] == []
    assert {entry.to for entry in entries if entry.kind == "converted"} <= CONVERTERS["trl"].keys()


def test_every_converter_is_used() -> None:
    entries = [entry for interface in INTERFACES for entry in table(interface).exact.values()]
    assert {entry.to for entry in entries if entry.kind == "converted"} == CONVERTERS["trl"].keys()


@pytest.mark.parametrize("interface", INTERFACES)
def test_the_defaults_of_a_configuration_request_nothing_that_is_not_here(interface: str) -> None:
    known = table(interface)
    shown = {**known.defaults, **known.unset}
    assert translate(known, {name: value for name, value in shown.items() if name != "output_dir"}).problems == []
    composed, problems = read(None, [], settings=settings_of(translate(known, {})))
    assert problems == []
    assert composed.config.actor.optim.schedule == "linear"


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_field_of_trls_class_is_known_with_its_default(interface: str) -> None:
    kind = interface.removeprefix("trl_")
    module = peer_module(f"trl.trainer.{kind}_config")
    found = next(each for name, each in vars(module).items() if name.lower() == f"{kind}config")
    known = table(interface)
    shown = {**known.unset, **known.defaults}
    fields = {field.name: field for field in dataclasses.fields(found) if field.init}
    assert len(fields) > 120
    assert [name for name in fields if name not in shown] == []
    defaults = {
        name: field.default if field.default is not dataclasses.MISSING else field.default_factory()
        for name, field in fields.items()
        if not (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)
    }
    assert {name: shown[name] for name in defaults} == defaults
    # Names of older versions, which are accepted.
    assert set(shown) - set(fields) <= {"warmup_ratio", "max_prompt_length"}
    assert peer_module("trl").__version__.startswith("1.16")


@pytest.mark.parametrize(
    ("interface", "arguments", "options"),
    [
        ("sft", {"output_dir": "runs/a"}, {"trainer.output_dir": "runs", "trainer.experiment_name": "a"}),
        ("sft", {"output_dir": "a/"}, {"trainer.output_dir": ".", "trainer.experiment_name": "a"}),
        (
            "sft",
            {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "num_devices": 4},
            {"data.train_batch_size": 64, "actor.mini_batch_size": 64},
        ),
        ("sft", {"max_steps": 7}, {"trainer.total_training_steps": 7}),
        ("sft", {"num_train_epochs": 2.0}, {"trainer.total_epochs": 2}),
        ("sft", {"max_length": 99}, {"data.max_prompt_length": 99, "data.max_response_length": 99}),
        ("sft", {"train_sampling_strategy": "sequential"}, {"data.shuffle": False}),
        ("sft", {"row_form": "completion"}, {"sft.loss_on": "assistant"}),
        ("sft", {"completion_only_loss": False}, {"sft.loss_on": "all"}),
        ("sft", {"row_form": "messages"}, {"sft.loss_on": "all"}),
        ("sft", {"row_form": "messages", "assistant_only_loss": True}, {"sft.loss_on": "assistant"}),
        ("sft", {"row_form": "text"}, {"sft.loss_on": "all"}),
        ("sft", {"save_strategy": "no"}, {}),
        ("sft", {"save_steps": 20, "save_total_limit": 3}, {"trainer.save_freq": 20, "trainer.max_checkpoints": 3}),
        ("sft", {"eval_strategy": "steps"}, {"trainer.test_freq": 10}),
        ("sft", {"eval_strategy": "epoch", "num_rows": 83}, {"trainer.test_freq": 10}),
        ("sft", {"warmup_steps": 0.1}, {"actor.optim.warmup_frac": 0.1}),
        ("sft", {"warmup_ratio": 0.2}, {"actor.optim.warmup_frac": 0.2}),
        ("sft", {"warmup_steps": 5}, {"actor.optim.warmup_steps": 5}),
        ("sft", {"lr_scheduler_type": "constant_with_warmup"}, {"actor.optim.schedule": "constant"}),
        (
            "sft",
            {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
            {"actor.optim.schedule": "cosine", "actor.optim.min_lr_ratio": 0.1},
        ),
        ("sft", {"report_to": ["wandb"]}, {"trainer.loggers": ["console", "jsonl", "wandb"]}),
        ("sft", {"bf16": True}, {"actor.fsdp.param_dtype": "bfloat16"}),
        ("sft", {"use_cpu": True, "use_liger_kernel": True}, {"cluster.device": "cpu", "model.kernels": "liger"}),
        ("sft", {"model_init_kwargs": {"attn_implementation": "flash_attention_2"}}, {"model.attention": "flash"}),
        ("dpo", {"beta": 0.3, "loss_type": "ipo"}, {"dpo.beta": 0.3, "dpo.losses": {"ipo": 1.0}}),
        (
            "dpo",
            {"loss_type": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 0.2, 1.0]},
            {"dpo.losses": {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}},
        ),
        ("dpo", {"label_smoothing": 0.1}, {"dpo.losses": {"cdpo": 1.0}, "dpo.label_smoothing": 0.1}),
        ("reward", {"center_rewards_coefficient": 0.01}, {"rm.center_rewards_coefficient": 0.01}),
        (
            "grpo",  # 2 x 4 GPUs x 8 responses in an update, twice as many in a generation, in groups of 8
            {
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 8,
                "steps_per_generation": 16,
                "num_devices": 4,
                "num_iterations": 3,
                "max_steps": 13,
            },
            {
                "data.train_batch_size": 16,
                "actor.mini_batch_size": 8,
                "actor.epochs": 3,
                "trainer.total_training_steps": 3,  # of 2 x 3 updates
            },
        ),
        ("grpo", {"generation_batch_size": 64}, {"data.train_batch_size": 8, "actor.mini_batch_size": 1}),
        ("grpo", {"epsilon": 0.1}, {"actor.clip_ratio_low": 0.1, "actor.clip_ratio_high": 0.1}),
        ("grpo", {"epsilon_high": 0.28}, {"actor.clip_ratio_high": 0.28}),
        (
            "grpo",
            {"loss_type": "cispo", "epsilon_high": 5.0},
            {"actor.policy_loss": "cispo", "actor.clip_ratio_low": 1.0, "actor.clip_ratio_high": 4.0},
        ),
        ("grpo", {"loss_type": "grpo"}, {"actor.loss_aggregation": "seq-mean-token-mean"}),
        ("grpo", {"importance_sampling_level": "sequence"}, {"actor.policy_loss": "gspo"}),
        ("grpo", {"scale_rewards": False}, {"algorithm.divide_by_std": False}),
        ("dpo", {"f_divergence_type": "forward_kl"}, {"dpo.f_divergence": "forward_kl"}),
        (
            "dpo",
            {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.3},
            {"dpo.f_divergence": "alpha_divergence", "dpo.f_alpha": 0.3},
        ),
        ("grpo", {"beta": 0.04}, {"actor.kl_loss_coef": 0.04, "actor.weigh_kl_by_ratio": True}),
        ("grpo", {"use_vllm": False}, {"rollout.backend": "hf"}),
        ("grpo", {"top_k": 5}, {"rollout.top_k": 5, "rollout.val.top_k": 5}),
        ("grpo", {"num_generations": 4}, {"rollout.n": 4, "rollout.val.n": 4}),
        ("grpo", {"vllm_importance_sampling_correction": False}, {f"{CORRECTION}.level": "off"}),
        (
            "grpo",
            {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 4.0},
            {f"{CORRECTION}.level": "token", f"{CORRECTION}.mode": "truncate", f"{CORRECTION}.upper": 4.0},
        ),
        ("grpo", {"chat_template_kwargs": {"thinking": False}}, {"data.chat_template_kwargs.thinking": False}),
    ],
)
def test_arguments_become_options(interface: str, arguments: dict[str, Any], options: dict[str, Any]) -> None:
    found = ours(interface, **arguments)
    assert {name: found.get(name) for name in options} == options


@pytest.mark.parametrize(
    ("interface", "arguments", "message"),
    [
        ("sft", {"optim": "adafactor"}, "torch.optim.AdamW is the only optimiser"),
        ("sft", {"push_to_hub": True}, "hf upload"),
        ("sft", {"fp16": True}, "models compute in bfloat16 or float32"),
        ("sft", {"num_train_epochs": 0.5}, "Set max_steps instead"),
        ("sft", {"max_length": None}, "max_length is empty; set it"),
        ("sft", {"eval_strategy": "epoch"}, "a data set of known length"),
        ("sft", {"save_steps": 0.1}, "expected a number of updates"),
        ("sft", {"report_to": "comet_ml"}, "expected none or some of tensorboard"),
        ("sft", {"output_dir": "."}, "name a folder"),
        ("sft", {"per_device_train_batch_size": 0}, "expected a number of at least 1"),
        ("sft", {"train_sampling_strategy": "group_by_length"}, "expected random or sequential"),
        ("sft", {"loss_type": "dft"}, "negative log-likelihood"),
        ("sft", {"assistant_only_loss": True, "row_form": "text"}, "rows are texts; expected messages"),
        ("sft", {"assistant_only_loss": True, "completion_only_loss": False}, "expected one of them"),
        ("sft", {"completion_only_loss": True, "row_form": "messages"}, "but rows have messages"),
        ("sft", {"model_init_kwargs": {"revision": "abc"}}, "a commit's folder"),
        ("sft", {"model_init_kwargs": {"quantization_config": "q"}}, "Of the arguments of from_pretrained"),
        ("dpo", {"f_divergence_type": "kl"}, "f_divergence_type is kl, expected one of reverse_kl"),
        ("dpo", {"loss_type": "discopop"}, "expected one of sigmoid"),
        ("dpo", {"loss_weights": [1.0, 2.0]}, "expected a weight for each"),
        ("dpo", {"use_weighting": True}, "All pairs count equally"),
        ("grpo", {"num_generations": 5, "num_devices": 1}, "whole groups of 5 responses"),
        ("grpo", {"generation_batch_size": 8, "steps_per_generation": 1}, "Keep one"),
        ("grpo", {"scale_rewards": "batch"}, "expected group or none"),
        ("grpo", {"loss_type": "cispo"}, "the largest weight of cispo"),
        ("grpo", {"loss_type": "new"}, "expected one of grpo"),
        ("grpo", {"importance_sampling_level": "turn"}, "expected token or sequence"),
        ("grpo", {"loss_type": "sapo", "importance_sampling_level": "sequence"}, "a ratio for each token"),
        ("grpo", {"vllm_importance_sampling_mode": "all"}, "truncate or mask"),
        ("grpo", {"vllm_importance_sampling_clip_max": None}, "clip_max is empty; set it"),
        (
            "grpo",
            {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_min": 0.5},
            "only masked weights have a lower bound",
        ),
        ("grpo", {"repetition_penalty": 1.1}, "there are no other sampling options"),
        ("grpo", {"generation_kwargs": {"min_p": 0.1}}, "there are no other sampling options"),
    ],
)
def test_what_is_not_here_is_refused_with_the_reason(interface: str, arguments: dict[str, Any], message: str) -> None:
    found = of(interface, **arguments)
    problems = [*found.problems, *found.empty]
    assert len(problems) >= 1 and any(message in problem for problem in problems), problems
