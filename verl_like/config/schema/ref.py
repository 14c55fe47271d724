"""The section ``ref``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import micro_batch_tokens, non_negative, option, ranks_per_sequence
from verl_like.config.schema.fsdp import FsdpConfig
from verl_like.config.section import Section


def _are_models(teachers: dict[Any, Any]) -> bool:
    return all(isinstance(text, str) and text for item in teachers.items() for text in item)


@dataclass(kw_only=True)
class RefConfig(Section):
    path: str = option("", "Reference model; empty means model.path.")
    teachers: dict[str, str] = option(
        {},
        "Several teachers for distillation instead of path, e.g. {math: path1, code: path2}: each row learns from the "
        "one that its column data.teacher_key names.",
        check=_are_models,
        expected="a mapping of names to folders or hub names, e.g. {math: path1, code: path2}",
    )
    reset_every: int = non_negative(
        0, "Steps after which the reference takes the actor's weights (ProRL); 0 keeps the initial ones.", unit="steps"
    )
    max_tokens_per_micro_batch: str = micro_batch_tokens("forward")
    sequence_parallel_size: int = ranks_per_sequence()
    fsdp: FsdpConfig = option(FsdpConfig, "Sharding of the reference.")

    @property
    def teacher_models(self) -> list[str]:
        """The distinct models of ``teachers``; several names may share one."""
        return list(dict.fromkeys(self.teachers.values()))
