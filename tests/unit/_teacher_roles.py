"""The setup and the rows of a worker that holds several teachers, without Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from verl_like.config.schema import Config
from verl_like.protocol import DataProto
from verl_like.workers.setup import WorkerSetup


def setup_of(teachers: dict[str, str], *, temperature: float = 1.0) -> WorkerSetup:
    config = Config()
    config.ref.teachers, config.rollout.temperature = teachers, temperature
    return WorkerSetup(config=config, rank=0, world_size=1, device="cpu", run_id="", roles=frozenset({"ref"}))


def remote(table: DataProto) -> Any:
    """Return rows whose columns are here."""
    return SimpleNamespace(columns=frozenset(table.columns), fetch=lambda columns, timeout_s: table.only(columns))
