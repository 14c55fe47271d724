"""Converters for flags of OpenRLHF's train_sft, train_dpo and train_rm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like_migrate import openrlhf
from verl_like_migrate.converters import Converted, Converter, entries, two_betas

PeerValues = Mapping[str, Any]
MANY = 1_000_000  # OpenRLHF's default, which means all
# OpenRLHF's names of schedules -> ours, and whether it reads the minimum's ratio.
SCHEDULES = {
    "cosine_with_min_lr": ("cosine", True),
    "cosine": ("cosine", False),
    "linear": ("linear", False),
    "constant_with_warmup": ("constant", False),
    "constant": ("constant", False),
}


def batch(values: PeerValues) -> Converted:
    """Convert the batch, each of which is one optimiser update."""
    return Converted(dict.fromkeys(("data.train_batch_size", "actor.mini_batch_size"), int(values["train.batch_size"])))


def lengths(values: PeerValues) -> Converted:
    """Convert the limit of prompt and answer together to a limit of each, which keeps every row that OpenRLHF keeps."""
    longest = int(values["data.max_len"])
    return Converted(
        {"data.max_prompt_length": longest, "data.max_response_length": longest, "data.overlong_prompts": "drop"},
        "limits prompt and answer separately and drops longer ones; OpenRLHF cuts the end of an answer",
    )


def betas(values: PeerValues) -> Converted:
    return two_betas(values, {"adam.betas": "actor.optim"})


def schedule(values: PeerValues) -> Converted:
    name = values["lr_scheduler"]
    if name not in SCHEDULES:
        raise ValueError(f"lr_scheduler is {name}; expected one of {', '.join(SCHEDULES)}")
    ours, has_minimum = SCHEDULES[name]
    return Converted(
        {
            "actor.optim.schedule": ours,
            "actor.optim.warmup_frac": 0.0 if name == "constant" else float(values["lr_warmup_ratio"]),
            "actor.optim.min_lr_ratio": float(values["min_lr_ratio"]) if has_minimum else 0.0,
        }
    )


def _budget(values: PeerValues, *, rows_per_item: int) -> Converted:
    tokens = int(values["train.micro_batch_size"]) * rows_per_item * int(values["data.max_len"])
    return Converted({"actor.max_tokens_per_micro_batch": str(tokens)}, "a token budget; auto would choose it")


def row_budget(values: PeerValues) -> Converted:
    return _budget(values, rows_per_item=1)


def pair_budget(values: PeerValues) -> Converted:
    return _budget(values, rows_per_item=2)


def train_files(values: PeerValues) -> Converted:
    found = _entries(values.get("data.dataset"), split=values["data.dataset_split"])
    return Converted({"data.train_files": found}, openrlhf.FILES_NOTE)


def val_files(values: PeerValues) -> Converted:
    found = _entries(values.get("eval.dataset"), split=values["eval.split"])
    return Converted({"data.val_files": found}, openrlhf.FILES_NOTE)


def _entries(names: Any, *, split: str) -> list[str]:
    if "@" in str(names):
        raise ValueError("it names a folder of a data set after @; name its files instead")
    return entries(names, split=split)


def train_weights(values: PeerValues) -> Converted:
    return openrlhf.weights_of(values["data.dataset_probs"])


def max_samples(values: PeerValues) -> Converted:
    count = int(values["data.max_samples"])
    note = "selected by the seed from all files together; data.shuffle=false takes the first ones"
    return Converted({"data.train_max_samples": count if count < MANY else -1}, note)


def columns(values: PeerValues) -> Converted:
    """Convert the columns of prompt and answer; without the answer's, OpenRLHF learns the last turn of whole chats."""
    prompt, answer = values["data.input_key"], values.get("data.output_key")
    if not answer and prompt == "messages":
        return Converted({"sft.loss_on": "last_turn"}, "whole chats")
    if not answer:
        raise ValueError("without data.output_key it names whole chats, which verl_like reads from the column messages")
    if isinstance(prompt, list) or isinstance(answer, list):
        raise ValueError("it names several columns; quote the name as one word")
    return Converted({"data.prompt_key": prompt, "data.answer_key": answer})


def prompt_key(values: PeerValues) -> Converted:
    """Convert the prompt's column; an empty name is that of no column."""
    return Converted({"data.prompt_key": values["data.prompt_key"] or ""}, "empty: what both responses begin with")


def pair_template(values: PeerValues) -> Converted:
    if values["data.input_template"] and not values["data.prompt_key"]:
        return Converted(note="ignored without data.prompt_key, as in OpenRLHF")
    return openrlhf.template(values)


def losses(values: PeerValues) -> Converted:
    """Convert the loss of conservative DPO and the negative log-probs of the chosen responses added to it."""
    if values.get("model.ipo_enable"):
        raise ValueError("its IPO compares sums over tokens; dpo.losses={ipo: 1} compares means per token, as TRL does")
    smoothing, nll = float(values.get("model.label_smoothing") or 0), float(values.get("model.nll_loss_coef") or 0)
    weights = {"cdpo" if smoothing else "sigmoid": 1.0} | ({"sft": nll} if nll else {})
    note = "sft is a mean over all chosen tokens; OpenRLHF takes the mean of each response first" if nll else ""
    return Converted({"dpo.losses": weights} | ({"dpo.label_smoothing": smoothing} if smoothing else {}), note)


def reference(values: PeerValues) -> Converted:
    path = values["ref.model_name_or_path"]
    if not path or path == values.get("model.model_name_or_path"):
        return Converted({"dpo.ref_path": ""}, "the initial weights of model.path")
    return Converted({"dpo.ref_path": path})


CONVERTERS: dict[str, Converter] = {
    function.__name__: function
    for function in (
        batch,
        lengths,
        betas,
        schedule,
        row_budget,
        pair_budget,
        openrlhf.test_freq,
        train_files,
        val_files,
        train_weights,
        max_samples,
        columns,
        prompt_key,
        openrlhf.template,
        pair_template,
        losses,
        reference,
        openrlhf.loggers,
        openrlhf.resume,
    )
}
