"""Converters for arguments of TRL's trainers that have no direct equivalent, or whose numbers have another meaning.

TRL counts responses per device, and optimiser updates. verl_like counts prompts over all devices, and steps, which may
have several updates. A table without ``num_generations`` is one of a trainer on given rows, where steps are updates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from verl_like.config.schema.preference import F_DIVERGENCES
from verl_like_migrate import trl_grpo
from verl_like_migrate.converters import Converted, Converter

PeerValues = Mapping[str, Any]
ALWAYS = ("console", "jsonl")  # what every run of a trainer writes
TRACKERS = ("tensorboard", "wandb", "mlflow", "swanlab", "trackio")
PAIR_LOSSES = (
    *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
    *("apo_zero", "apo_down", "sft", "sigmoid_norm"),
)


def folder(values: PeerValues) -> Converted:
    """Let the run's folder be ``output_dir`` itself."""
    if values["output_dir"] is None:
        return Converted()
    path = PurePath(os.path.normpath(values["output_dir"]))
    if not path.name or path.name == "..":
        raise ValueError(f"it is {values['output_dir']}, which has no name; name a folder in it")
    return Converted({"trainer.output_dir": str(path.parent), "trainer.experiment_name": path.name})


def _per_update(values: PeerValues) -> int:
    """Return the rows of one optimiser update over all devices; in GRPO they are responses."""
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    for name in names:
        if isinstance(values[name], bool) or not isinstance(values[name], int) or values[name] < 1:
            raise ValueError(f"{name} is {values[name]}; expected a number of at least 1")
    return int(values[names[0]] * values[names[1]] * values.get("num_devices", 1))


def _per_step(values: PeerValues) -> int:
    """Return the responses of one step: of one generation, in TRL's terms."""
    size, steps = values["generation_batch_size"], values["steps_per_generation"]
    if size is not None and steps is not None:
        raise ValueError("generation_batch_size and steps_per_generation are both set. Keep one")
    if size is not None:
        return int(size)
    accumulated = int(values["gradient_accumulation_steps"])
    return _per_update(values) // accumulated * (accumulated if steps is None else int(steps))


def batches(values: PeerValues) -> Converted:
    update = _per_update(values)
    if "num_generations" not in values:
        return Converted({"data.train_batch_size": update, "actor.mini_batch_size": update})
    step, n = _per_step(values), int(values["num_generations"])
    if step % update or update % n:
        raise ValueError(
            f"a generation has {step} responses and an update {update}; expected whole updates of whole groups of {n} "
            "responses. Change per_device_train_batch_size or gradient_accumulation_steps"
        )
    return Converted({"data.train_batch_size": step // n, "actor.mini_batch_size": update // n})


def _in_steps(values: PeerValues, name: str) -> Converted:
    """Convert a number of updates to whole steps; the result is ``settings["steps"]``."""
    updates = values[name]
    if isinstance(updates, float) and not updates.is_integer():
        raise ValueError(f"{name} is {updates}, a share of the run; expected a number of updates")
    is_grpo = "num_generations" in values
    per_step = _per_step(values) // _per_update(values) * int(values["num_iterations"]) if is_grpo else 1
    steps = -(-int(updates) // max(per_step, 1))
    note = f"{int(updates)} updates are {steps} steps of {per_step}" if per_step > 1 else ""
    return Converted({"steps": steps}, note)


def steps(values: PeerValues) -> Converted:
    if values["max_steps"] > 0:
        found = _in_steps(values, "max_steps")
        return Converted({"trainer.total_training_steps": found.settings["steps"]}, found.note)
    epochs = float(values["num_train_epochs"])
    if not epochs.is_integer():
        raise ValueError(f"num_train_epochs is {epochs}; expected a whole number. Set max_steps instead")
    return Converted({"trainer.total_epochs": int(epochs)})


def _every(values: PeerValues, *, strategy: str, period: str) -> Converted:
    if values[strategy] == "no":
        return Converted({"steps": 0})
    if values[strategy] == "epoch" and values.get("num_rows"):
        return Converted({"steps": max(values["num_rows"] // batches(values).settings["data.train_batch_size"], 1)})
    if values[strategy] != "steps":
        raise ValueError(
            f"{strategy} is {values[strategy]}; expected no, steps, or epoch with a data set of known length. Set it "
            f"to steps, and {period}"
        )
    return _in_steps(values, period if values[period] is not None else "logging_steps")


def saves(values: PeerValues) -> Converted:
    found = _every(values, strategy="save_strategy", period="save_steps")
    return Converted({"trainer.save_freq": found.settings["steps"]}, found.note or "and a checkpoint at the end")


def validations(values: PeerValues) -> Converted:
    found = _every(values, strategy="eval_strategy", period="eval_steps")
    return Converted({"trainer.test_freq": found.settings["steps"]}, found.note)


def warmup(values: PeerValues) -> Converted:
    """Convert both forms of a warm-up: transformers 5 reads ``warmup_steps`` below 1 as a share of all updates."""
    count, share = values["warmup_steps"], values["warmup_ratio"]
    if values["lr_scheduler_type"] == "constant":
        return Converted(note="the schedule constant has no warm-up; constant_with_warmup has")
    if share or 0 < count < 1:
        return Converted({"actor.optim.warmup_frac": float(share or count)})
    return Converted({"actor.optim.warmup_steps": int(count)})


def loggers(values: PeerValues) -> Converted:
    given = values["report_to"]
    names = [given] if isinstance(given, str) else list(given or ())
    names = [name for name in names if name != "none"]
    if unknown := sorted(set(names) - set(TRACKERS)):
        raise ValueError(f"found {', '.join(unknown)}, expected none or some of {', '.join(TRACKERS)}")
    return Converted({"trainer.loggers": [*ALWAYS, *names]})


def precision(values: PeerValues) -> Converted:
    if values.get("fp16"):
        raise ValueError("models compute in bfloat16 or float32. Set bf16=True, or bf16=False for float32")
    if values.get("bf16") is None:
        return Converted()
    dtype = "bfloat16" if values["bf16"] else "float32"
    engine = {"rollout.dtype": dtype} if "num_generations" in values else {}
    return Converted({"actor.fsdp.param_dtype": dtype, "ref.fsdp.param_dtype": dtype, **engine})


def max_length(values: PeerValues) -> Converted:
    longest = int(values["max_length"])
    return Converted(
        {"data.max_prompt_length": longest, "data.max_response_length": longest},
        "limits the prompt and the response each; longer rows are refused",
    )


def loss_on(values: PeerValues) -> Converted:
    """Convert the masks of supervised training, whose defaults depend on the columns of the rows."""
    form, only_completion = values.get("row_form", "completion"), values["completion_only_loss"]
    if values["assistant_only_loss"]:
        if form == "text":
            raise ValueError("assistant_only_loss is true, but rows are texts; expected messages, or leave it out")
        if form == "completion" and only_completion is False:
            raise ValueError(
                "assistant_only_loss is true and completion_only_loss is false; expected one of them, because the "
                "assistant's turns of prompts are not learnt here"
            )
        return Converted({"sft.loss_on": "assistant"})
    if only_completion and form != "completion":
        raise ValueError(f"completion_only_loss is true, but rows have {form}; expected prompt and completion")
    return Converted({"sft.loss_on": "assistant" if form == "completion" and only_completion is not False else "all"})


def shuffle(values: PeerValues) -> Converted:
    orders = {"random": True, "sequential": False}
    if values["train_sampling_strategy"] not in orders:
        raise ValueError(f"found {values['train_sampling_strategy']}, expected random or sequential")
    return Converted({"data.shuffle": orders[values["train_sampling_strategy"]]})


def dpo_losses(values: PeerValues) -> Converted:
    """Convert a loss or a mixture; ``sigmoid`` with smoothed labels is called ``cdpo`` here."""
    names = values["loss_type"]
    names = [names] if isinstance(names, str) else list(names)
    weights = values["loss_weights"] or [1.0] * len(names)
    if len(weights) != len(names):
        raise ValueError(f"there are {len(names)} losses and {len(weights)} loss_weights; expected a weight for each")
    smoothing = float(values["label_smoothing"])
    found: dict[str, float] = {}
    for name, weight in zip(names, weights, strict=True):
        if name not in PAIR_LOSSES:
            raise ValueError(f"loss_type is {name}, expected one of {', '.join(PAIR_LOSSES)}")
        own = "cdpo" if name == "sigmoid" and smoothing else name
        found[own] = found.get(own, 0.0) + float(weight)
    return Converted({"dpo.losses": found, "dpo.label_smoothing": smoothing})


def f_divergence(values: PeerValues) -> Converted:
    """Convert the divergence; its coefficient is read for ``alpha_divergence`` alone."""
    name = values["f_divergence_type"]
    if name not in F_DIVERGENCES:
        raise ValueError(f"f_divergence_type is {name}, expected one of {', '.join(F_DIVERGENCES)}")
    alpha = {"dpo.f_alpha": float(values["f_alpha_divergence_coef"])} if name == "alpha_divergence" else {}
    return Converted({"dpo.f_divergence": name, **alpha})


CONVERTERS: dict[str, Converter] = {
    function.__name__: function
    for function in (
        folder,
        batches,
        steps,
        saves,
        validations,
        warmup,
        loggers,
        precision,
        max_length,
        loss_on,
        shuffle,
        dpo_losses,
        f_divergence,
        *trl_grpo.CONVERTERS,
    )
}
