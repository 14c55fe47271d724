"""TRL's arguments of trainers that have no equivalent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like.config.suggestion import suggestion

KNOWN = ("args", "train_dataset", "eval_dataset", "processing_class", "peft_config", "reward_funcs", "ref_model")
_OPTIMIZER = "Set the optimiser's options in args: learning_rate, weight_decay, adam_beta1, lr_scheduler_type."
_AGENTS = "Name a file: trainer.config.environment.tools or environment.path (docs/agents.md)."
INSTEAD = {
    "callbacks": "train() returns the metrics, and args.report_to names trackers.",
    "compute_loss_func": "Losses are options (docs/algorithms.md).",
    "compute_metrics": "A validation reports the metrics of docs/metrics.md.",
    "data_collator": "Rows are packed without padding.",
    "environment_factory": _AGENTS,
    "formatting_func": "Map the data set first: train_dataset.map(function).",
    "optimizer_cls_and_kwargs": _OPTIMIZER,
    "optimizers": _OPTIMIZER,
    "preprocess_logits_for_metrics": "A validation reports the metrics of docs/metrics.md.",
    "quantization_config": "Weights are trained in float32; a peft_config reduces memory.",
    "reward_processing_classes": "A reward model's folder has its tokenizer.",
    "rollout_func": "Write an agent program (docs/agents.md).",
    "tools": _AGENTS,
}

_LOOP = "A command of verl-like runs the training loop. To change it, write a trainer (docs/adding_a_trainer.md)."
_OPTIMISER_OF_RUN = "Workers hold the optimiser, and args set it: learning_rate, weight_decay, lr_scheduler_type."
_ROWS = "Rows are read by the run, and their number is in the output of train()."
# Attributes of transformers' Trainer that scripts use -> what to use instead.
ATTRIBUTES = {
    "model": "Workers hold the weights: call save_model(folder) and load the folder with transformers.",
    "ref_model": "Workers hold the reference, which config.dpo.ref_path or config.ref.path names.",
    "tokenizer": "Load it from the model's folder with transformers.",
    "processing_class": "Load it from the model's folder with transformers.",
    "train_dataset": _ROWS,
    "eval_dataset": _ROWS,
    "get_train_dataloader": _ROWS,
    "get_eval_dataloader": _ROWS,
    "get_test_dataloader": _ROWS,
    "optimizer": _OPTIMISER_OF_RUN,
    "lr_scheduler": _OPTIMISER_OF_RUN,
    "create_optimizer": _OPTIMISER_OF_RUN,
    "create_scheduler": _OPTIMISER_OF_RUN,
    "create_optimizer_and_scheduler": _OPTIMISER_OF_RUN,
    "get_num_trainable_parameters": "`verl-like plan` prints the size of a model.",
    "add_callback": INSTEAD["callbacks"],
    "pop_callback": INSTEAD["callbacks"],
    "remove_callback": INSTEAD["callbacks"],
    "compute_loss": INSTEAD["compute_loss_func"],
    "training_step": _LOOP,
    "prediction_step": _LOOP,
    "evaluation_loop": _LOOP,
    "predict": "`verl-like generate` with the run's config.yaml writes responses.",
    "log": "train() returns the metrics, and args.report_to names trackers.",
    "save_state": "A run's checkpoints hold its state, and trainer.state.log_history the metrics.",
    "hyperparameter_search": "Start a run for each value, with another output_dir.",
    "create_model_card": "The run's folder has config.yaml, the configuration with the origin of each value.",
    "init_hf_repo": "A run pushes nothing to the hub. Use `hf upload REPOSITORY folder`.",
    "hub_model_id": "A run pushes nothing to the hub. Use `hf upload REPOSITORY folder`.",
}


def missing_attribute(trainer: str, name: str) -> AttributeError:
    """Return the error of an attribute that a trainer lacks, with what to use instead."""
    if name in ATTRIBUTES:
        return AttributeError(f"{trainer} has no {name}. {ATTRIBUTES[name]}")
    return AttributeError(f"{trainer} has no {name}. docs/trl.md lists its methods.")


def refuse_others(trainer: str, others: Mapping[str, Any]) -> None:
    """Refuse arguments that are unknown, or ask for something that is not here; None and empty lists ask for nothing.

    Raises:
        TypeError: unknown names.
        ValueError: known ones without an equivalent.
    """
    if unknown := [name for name in others if name not in INSTEAD]:
        hints = [f"{trainer} has no argument {name}{_hint(name)}" for name in unknown]
        raise TypeError("\n".join(hints))
    asked = {name: value for name, value in others.items() if value not in (None, [], (), (None, None))}
    if asked:
        lines = [f"{name} has no equivalent here. {INSTEAD[name]}" for name in asked]
        raise ValueError("\n".join(lines))


def _hint(name: str) -> str:
    if name == "tokenizer":  # the name in older versions
        return "; did you mean processing_class?"
    return suggestion(name, (*KNOWN, *INSTEAD)) or "; see docs/trl.md."
