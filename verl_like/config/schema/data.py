"""The sections ``data`` and ``data.curriculum``: rows, prompts and the sampler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import fraction, option, positive
from verl_like.config.section import Section

CURRICULUM = "curriculum"  # the sampler of ours


def _max_samples(doc: str) -> Any:
    return option(-1, doc, unit="rows", check=lambda v: v == -1 or v > 0, expected="-1, or a number above 0")


@dataclass(kw_only=True)
class CurriculumConfig(Section):
    """Which prompts ``data.sampler=curriculum`` draws, by the mean score of their responses so far."""

    low: float = option(0.2, "Mean score from which a prompt is not too hard; of scores from 0 to 1, a pass rate.")
    high: float = option(0.8, "Mean score up to which a prompt is not too easy.")
    unseen_frac: float = fraction(
        0.5,
        "Share of a batch for prompts that were never drawn, while there are any; 1 draws all before any comes again.",
    )
    outside_weight: float = positive(
        0.1, "Weight with which a prompt outside of low and high comes again; one inside has 1."
    )
    newest_frac: float = option(
        0.5,
        "What the newest visit counts in a prompt's mean score; the mean before it has the rest.",
        check=lambda v: 0 < v <= 1,
        expected="a number above 0, up to 1",
    )


@dataclass(kw_only=True)
class DataConfig(Section):
    train_files: list[str] = option(
        [], "Training rows: parquet or jsonl files, or Hugging Face datasets as hf:NAME[:CONFIGURATION]:SPLIT."
    )
    train_weights: list[float] = option(
        [],
        "Shares of train_files in every batch, a number for each file, e.g. [2, 1]; an epoch then has as many prompts "
        "as there are rows in all. Empty takes each row once an epoch.",
        check=lambda v: all(isinstance(w, (int, float)) and 0 < w < float("inf") for w in v),
        expected="a list of numbers above 0",
    )
    val_files: list[str] = option([], "Held-out rows for validation, named in the same ways.")
    custom_dataset: str = option(
        "",
        "`path/to/file.py:name` of a function or class that makes the rows of each entry of train_files and val_files, "
        "in place of reading files.",
    )
    custom_dataset_kwargs: dict[str, Any] = option({}, "Keyword arguments passed to it with each entry.")
    train_max_samples: int = _max_samples(
        "Rows of train_files that are trained on, -1 for all: a choice by trainer.seed under shuffle, else the first "
        "ones; made of all files together, before long prompts are dropped."
    )
    val_max_samples: int = _max_samples(
        "The same of val_files, but that the choice is the same whatever trainer.seed is."
    )
    prompt_key: str = option("prompt", "Column with the prompt: a chat list of {role, content} or a plain string.")
    answer_key: str = option(
        "answer", "Column with the ground truth where rows have no reward_model.ground_truth; also the target of `sft`."
    )
    data_source: str = option("default", "Name given to rows that carry no data_source column.")
    train_batch_size: int = positive(32, "Prompts per step.", unit="prompts")
    val_batch_size: int = positive(1024, "Prompts per validation rollout call.", unit="prompts")
    max_prompt_length: int = positive(512, "Longest prompt kept.", unit="tokens")
    max_response_length: int = positive(512, "Longest response generated.", unit="tokens")
    overlong_prompts: str = option(
        "error",
        "What happens to a prompt longer than max_prompt_length; truncate keeps its end.",
        choices=("error", "drop", "truncate"),
    )
    sampler: str = option(
        "",
        "In place of shuffle and train_weights: curriculum, or `path/to/file.py:name` of a function that orders the "
        "rows of an epoch or of a class that chooses the rows of each batch.",
    )
    sampler_kwargs: dict[str, Any] = option({}, "Keyword arguments passed to a sampler of one's own.")
    curriculum: CurriculumConfig = option(CurriculumConfig, "What data.sampler=curriculum draws.")
    shuffle: bool = option(True, "Shuffle the training rows anew each epoch, from trainer.seed.")
    apply_chat_template: bool = option(
        True, "Render prompts with the tokenizer's chat template; false feeds plain strings as they are."
    )
    chat_template_kwargs: dict[str, Any] = option(
        {}, "Extra variables for the chat template, e.g. {enable_thinking: false}."
    )
    format_prompt: str = option(
        "", "Jinja template (text or path of a .jinja file) around the user's text; the text is {{ content }}."
    )
