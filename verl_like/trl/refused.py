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
