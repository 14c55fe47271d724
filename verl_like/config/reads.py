"""Options that each command reads: its help lists only these, and other options are reported as without effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
_EVAL = (
    *_ROWS,
    "data.val_files",
    "data.val_max_samples",
    "data.val_batch_size",
    "data.data_source",
    "model",
    "actor.fsdp",
    "actor.sequence_parallel_size",
    "actor.max_tokens_per_micro_batch",
    *_ENGINE,
    "environment",
    "reward",
    *_FOLDER,
    "trainer.val_only",  # set by these commands themselves
    "trainer.num_samples_to_save",
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
    "actor.mini_batch_size",
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
# Command -> sections and options that it reads; a command that is missing here reads all.
READ: dict[str, tuple[str, ...]] = {
    "sft": (*_ON_ROWS, "sft"),
    "dpo": (*(name for name in _ON_ROWS if name != "data.answer_key"), "dpo", *_REF, "trainer.reference_cache"),
    "rm": (*(name for name in _ON_ROWS if name != "data.answer_key"), "rm"),
    "eval": _EVAL,
    "generate": _EVAL,
    "play": (*_EVAL, "data.train_files"),
}


def reads(command: str, name: str) -> bool:
    """Return whether a command reads the option ``name``, or any option of the section ``name``."""
    known = READ.get(command)
    return known is None or any(_covers(each, name) or _covers(name, each) for each in known)


def without_effect(command: str, words: Iterable[str]) -> Iterator[str]:
    """Yield the keys of a command line that the command ignores, each with the key that it reads instead, if any."""
    for word in words:
        name = word.partition("=")[0].lstrip("+~").replace("/", ".").partition("@")[0]
        if "=" in word and not reads(command, name):
            instead = _VALIDATES.get(name) if command in ("eval", "generate", "play") else None
            yield f"{name} (it reads {instead})" if instead else name


def _covers(section: str, name: str) -> bool:
    return name == section or name.startswith(f"{section}.")
