"""Options that each command reads: its help lists only these, and other options are reported as without effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from verl_like.config.options import value_of
from verl_like.config.schema import Config

_Section = TypeVar("_Section")

_ROWS = (
    "data.custom_dataset",
    "data.custom_dataset_kwargs",
    "data.prompt_key",
    "data.answer_key",
    "data.max_prompt_length",
    "data.max_response_length",
    "data.overlong_prompts",
    "data.apply_chat_template",
    "data.chat_template_kwargs",
    "data.format_prompt",
)
_FOLDER = tuple(
    f"trainer.{name}"
    for name in (
        "experiment_name",
        "output_dir",
        "remote_dir",
        "remote_timeout_s",
        "prepare_command",
        "seed",
        "deterministic",
        "resume",
        "max_records_gib",
        "balance_by",
        "profile_steps",
        "stage_timeout_s",
        "stall_after_s",
        "on_stall",
        "grace_s",
    )
)
# Options that validation reads under another name.
_VALIDATES = {f"rollout.{name}": f"rollout.val.{name}" for name in ("n", "temperature", "top_p", "top_k")}
_ENGINE = tuple(
    f"rollout.{name}"
    for name in (
        "backend",
        "ignore_eos",
        "tensor_parallel_size",
        "dtype",
        "gpu_memory_utilization",
        "kv_cache_memory_gib",
        "max_num_seqs",
        "max_num_batched_tokens",
        "enforce_eager",
        "lora",
        "sync_bucket_mib",
        "sync_checksum",
        "block_kib",
        "dealing",
        "engine_kwargs",
        "val",
    )
)
_GENERATES = (
    "data.val_batch_size",
    "data.data_source",
    "data.prompt_cache",
    "data.image_key",
    "data.video_key",
    "data.video_frames",
    "data.image_dir",
    "data.max_image_pixels",
    *_ENGINE,
    "environment",
    "reward",
    "trainer.num_samples_to_save",
)
_EVAL = (
    *_ROWS,
    "data.val_files",
    "data.val_max_samples",
    "model",
    "actor.fsdp",
    "actor.sequence_parallel_size",
    "actor.max_tokens_per_micro_batch",
    *_GENERATES,
    *_FOLDER,
    "trainer.val_only",  # set by these commands themselves
    "cluster",
)
_ON_ROWS = (
    *_ROWS,
    "data.train_files",
    "data.train_weights",
    "data.train_max_samples",
    "data.train_batch_size",
    "data.val_files",
    "data.val_max_samples",
    "data.shuffle",
    "model",
    "actor.max_tokens_per_micro_batch",
    "actor.mini_batch_size",  # of a recipe for several commands; an update is on the whole batch
    "actor.sequence_parallel_size",
    "actor.use_torch_compile",
    "actor.compile_layers",
    "actor.log_prob_chunk_mib",
    "actor.optim",
    "actor.fsdp",
    *_FOLDER,
    "trainer.total_epochs",
    "trainer.total_training_steps",
    "trainer.save_freq",
    "trainer.test_freq",
    "trainer.val_before_train",
    "trainer.max_checkpoints",
    "trainer.async_save",
    "trainer.loggers",
    "trainer.project_name",
    "trainer.max_restarts",
    "cluster",
)
_REF = ("ref.max_tokens_per_micro_batch", "ref.sequence_parallel_size", "ref.fsdp")  # of the model dpo.ref_path
# Command -> what it also reads if its validation generates (sft.val_generate).
READ_TO_GENERATE = {"sft": (*_GENERATES, "trainer.best_metric")}
# Command -> sections and options that it reads; a command that is missing here reads all.
READ: dict[str, tuple[str, ...]] = {
    "sft": (*_ON_ROWS, "sft"),
    "dpo": (*(name for name in _ON_ROWS if name != "data.answer_key"), "dpo", *_REF, "trainer.reference_cache"),
    "rm": (*(name for name in _ON_ROWS if name != "data.answer_key"), "rm"),
    "eval": _EVAL,
    "generate": _EVAL,
    "play": (*_EVAL, "data.train_files"),
}


# Command -> option that it does not read -> the option with the same meaning that it reads.
INSTEAD = {"dpo": {"ref.path": "dpo.ref_path"}}


def reads(command: str, name: str, *, generates: bool = False) -> bool:
    """Return whether a command reads the option ``name``, or any option of the section ``name``.

    Args:
        generates: whether a command on given rows generates in its validation.
    """
    known = READ.get(command)
    more = READ_TO_GENERATE.get(command, ()) if generates else ()
    return known is None or any(_covers(each, name) or _covers(name, each) for each in (*known, *more))


def without_effect(command: str, words: Iterable[str], *, generates: bool = False) -> Iterator[str]:
    """Yield the keys of a command line that the command ignores, each with the key that it reads instead, if any.

    Args:
        generates: as for :func:`reads`.
    """
    for word in words:
        name = word.partition("=")[0].lstrip("+~").replace("/", ".").partition("@")[0]
        if "=" in word and not reads(command, name, generates=generates):
            instead = _VALIDATES.get(name) if generates or command in ("eval", "generate", "play") else None
            yield f"{name} (it reads {instead})" if instead else name


def as_read(command: str, config: Config) -> Config:
    """Return a configuration in which options that a command does not read have their defaults.

    Rules on it report nothing that the command ignores. An update is on the whole batch.
    """
    if command not in READ:
        return config
    found = _read_in(config, Config(), lambda name: reads(command, name, generates=config.val_generates(command)), "")
    for learner in (found.actor, found.critic):
        learner.mini_batch_size = found.data.train_batch_size
    return found


def misplaced(command: str, config: Config) -> Iterator[str]:
    """Yield the problems of options for which a command has another one."""
    plain = Config()
    for name, instead in INSTEAD.get(command, {}).items():
        if (value := value_of(config, name)) != value_of(plain, name):
            yield f"{name} is {value}, but {command} reads {instead}. Set {instead}={value}, and leave out {name}."


def in_vain(command: str, config: Config, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield ``option (origin)`` for what a user sets to another value than the one with which a command runs.

    Words of the command line that :func:`without_effect` names are left out.

    Args:
        origins: the origin of each option; files below ``conf/`` are the project's.
    """
    effective = as_read(command, config)
    for name, origin in origins.items():
        is_file = origin.endswith((".yaml", ".yml")) and not origin.startswith("conf/")
        is_word = origin == "command line" and reads(command, name, generates=config.val_generates(command))
        if (is_file or is_word) and value_of(config, name) != value_of(effective, name):
            yield f"{name} ({origin})"


def _read_in(section: _Section, plain: _Section, is_read: Callable[[str], bool], prefix: str) -> _Section:
    """Return a copy of a section with the defaults of ``plain`` for what is not read."""
    values: dict[str, Any] = {}
    for name, value in vars(section).items():
        default, full = vars(plain)[name], f"{prefix}{name}"
        if is_dataclass(value):
            values[name] = _read_in(value, default, is_read, f"{full}.")
        else:
            values[name] = value if is_read(full) else default
    return replace(section, **values)  # type: ignore[type-var]


def _covers(section: str, name: str) -> bool:
    return name == section or name.startswith(f"{section}.")
