"""The sections ``data`` and ``data.curriculum``: rows, prompts and the sampler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import fraction, option, positive
from verl_like.config.section import Section

CURRICULUM = "curriculum"  # name of the built-in sampler


def _max_samples(doc: str) -> Any:
    return option(-1, doc, unit="rows", check=lambda v: v == -1 or v > 0, expected="-1, or a number above 0")


@dataclass(kw_only=True)
class CurriculumConfig(Section):
    """Selection of prompts by the mean score of their responses so far (``data.sampler=curriculum``)."""

    low: float = option(0.2, "Mean score below which a prompt is too hard; a pass rate if scores are from 0 to 1.")
    high: float = option(0.8, "Mean score above which a prompt is too easy.")
    unseen_frac: float = fraction(
        0.5, "Share of a batch for prompts not drawn yet, while any are left; 1 draws all once before it repeats any."
    )
    outside_weight: float = positive(0.1, "Sampling weight of a prompt outside low and high; inside it is 1.")
    newest_frac: float = option(
        0.5,
        "Weight of the newest visit in a prompt's mean score; the old mean has the rest.",
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
        "Share of each of train_files in every batch, e.g. [2, 1]; an epoch then has as many prompts as there are "
        "rows in all. Empty uses each row once per epoch.",
        check=lambda v: all(isinstance(w, (int, float)) and 0 < w < float("inf") for w in v),
        expected="a list of numbers above 0",
    )
    val_files: list[str] = option([], "Held-out rows for validation, named in the same way.")
    custom_dataset: str = option(
        "",
        "`path/to/file.py:name` of a function or class that makes the rows of each entry of train_files and "
        "val_files, instead of reading files.",
    )
    custom_dataset_kwargs: dict[str, Any] = option({}, "Keyword arguments passed to it with each entry.")
    train_max_samples: int = _max_samples(
        "Number of training rows, -1 for all: random by trainer.seed with shuffle, else the first; chosen from all "
        "files together, before long prompts are dropped."
    )
    val_max_samples: int = _max_samples("The same for val_files, but independent of trainer.seed.")
    prompt_key: str = option("prompt", "Column with the prompt: a chat list of {role, content} or a plain string.")
    answer_key: str = option(
        "answer", "Column with the ground truth if rows have no reward_model.ground_truth; also the target of `sft`."
    )
    image_key: str = option(
        "images",
        "Column with the pictures of a prompt: a list or one; without it, the column image. For models that read them.",
        check=bool,
        expected="the name of a column",
    )
    video_key: str = option(
        "videos",
        "Column with the videos of a prompt: a list or one. For models that read pictures: they get frames.",
        check=bool,
        expected="the name of a column",
    )
    video_frames: int = option(
        8,
        "Frames taken evenly from each video, all if it has fewer; nframes of a row's video overrides it.",
        unit="frames",
        check=lambda v: 1 <= v <= 64,
        expected="a number from 1 to 64",
    )
    image_dir: str = option(
        "",
        "Folder that paths of pictures and videos are relative to and must stay in; empty is the folder of the row's "
        "file.",
    )
    max_image_pixels: int = positive(50_000_000, "Largest picture, or frame of a video, that is read.", unit="pixels")
    privileged_context_key: str = option(
        "privileged_context",
        "Column with text that only the teacher of algorithm.distill_teacher=self, ema or base sees; it may be null.",
    )
    teacher_prompt: str = option(
        "{{ content }}\n\n{{ privileged_context }}",
        "Jinja template (text or path of a .jinja file) of the user's text in the teacher's prompt; {{ content }} is "
        "the user's text in the policy's prompt.",
    )
    data_source: str = option("default", "Data source of rows without a data_source column.")
    teacher_key: str = option("teacher", "Column with the name of each row's teacher, with ref.teachers.")
    train_batch_size: int = positive(32, "Prompts per step.", unit="prompts")
    val_batch_size: int = positive(1024, "Prompts per validation rollout call.", unit="prompts")
    max_prompt_length: int = positive(512, "Longest prompt kept.", unit="tokens")
    max_privileged_context_length: int = positive(
        512, "Tokens by which the teacher's prompt may be longer than max_prompt_length.", unit="tokens"
    )
    max_response_length: int = positive(512, "Longest response generated.", unit="tokens")
    overlong_prompts: str = option(
        "error",
        "Handling of prompts longer than max_prompt_length; truncate keeps the end.",
        choices=("error", "drop", "truncate"),
    )
    prompt_cache: str = option(
        "~/.cache/verl_like/prompts",
        "Folder of tokenised prompts, by digests of rows, options and tokenizer; empty tokenises them at each start.",
    )
    sampler: str = option(
        "",
        "Replaces shuffle and train_weights: curriculum, or `path/to/file.py:name` of a function that orders an "
        "epoch's rows or of a class that chooses each batch.",
    )
    sampler_kwargs: dict[str, Any] = option({}, "Keyword arguments passed to a custom sampler.")
    curriculum: CurriculumConfig = option(CurriculumConfig, "Prompts that curriculum draws.")
    shuffle: bool = option(True, "Shuffle the training rows anew each epoch, from trainer.seed.")
    apply_chat_template: bool = option(
        True, "Render prompts with the tokenizer's chat template; false passes plain strings unchanged."
    )
    chat_template_kwargs: dict[str, Any] = option(
        {}, "Extra variables for the chat template, e.g. {enable_thinking: false}."
    )
    format_prompt: str = option(
        "", "Jinja template (text or path of a .jinja file) around the user's text, {{ content }}."
    )
