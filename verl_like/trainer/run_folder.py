"""The run folder: where everything a run leaves behind lies, and whose run it is."""

from __future__ import annotations

from pathlib import Path

import yaml

from verl_like.config.schema import Config

# What may change between a run and its continuation; everything else must be the same run.
MAY_CHANGE = {"trainer", "cluster"}


class RunFolder:
    """``output_dir/experiment_name`` with config.yaml, metrics.jsonl, tensorboard/, checkpoints/, samples/, model/."""

    def __init__(self, config: Config) -> None:
        self.path = Path(config.trainer.output_dir) / config.trainer.experiment_name
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.samples = self.path / "samples"
        self.model = self.path / "model"

    def claim(self, config_yaml: str, *, resume: str) -> None:
        """Make the folder this run's, or raise where it belongs to another.

        Raises:
            ValueError: the folder holds a run with another configuration, or a run at all under ``resume=never``.
        """
        recorded = self.path / "config.yaml"
        if recorded.exists():
            if resume == "never":
                raise ValueError(
                    f"{self.path} holds a run already and trainer.resume=never. "
                    "Choose another trainer.experiment_name, or delete the folder."
                )
            differences = _differences(yaml.safe_load(recorded.read_text()), yaml.safe_load(config_yaml))
            if differences:
                raise ValueError(
                    f"{self.path} is the folder of another run; it differs in {'; '.join(differences[:5])}. "
                    "Choose another trainer.experiment_name, or delete the folder."
                )
        for folder in (self.checkpoints, self.samples):
            folder.mkdir(parents=True, exist_ok=True)
        recorded.write_text(config_yaml)


def _differences(old: dict[str, object], new: dict[str, object], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key in sorted(set(old) | set(new)):
        if not prefix and key in MAY_CHANGE:
            continue
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key} ({a} there, {b} here)")
    return found
