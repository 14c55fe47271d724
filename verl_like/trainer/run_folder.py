"""The run folder: where everything a run leaves behind lies, and whose run it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import yaml

from verl_like.config.hidden import NAME as SECRETS
from verl_like.config.hidden import holds_mask, without_secrets
from verl_like.config.record import with_earlier_starts
from verl_like.config.schema import Config
from verl_like.config.user_code import FROM_PYTHON
from verl_like.config.yaml_text import load
from verl_like.disk import writing
from verl_like.masking import OWNER_ONLY, masked
from verl_like.telemetry.trackers import write_atomically

# What may change between a run and its continuation; everything else must be the same run.
MAY_CHANGE = {"trainer", "cluster"}


class RunFolder:
    """``output_dir/experiment_name`` with config.yaml, metrics.jsonl, tensorboard/, checkpoints/, samples/, capsules/,
    logs/, profile/ and model/.

    Evaluations write below ``eval/`` and nowhere else, so that they can use a training run's folder.
    """

    def __init__(self, config: Config) -> None:
        # Absolute, because workers write there too, from working directories of their own.
        self.path = Path(config.trainer.output_dir).expanduser().absolute() / config.trainer.experiment_name
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.samples = self.path / "samples"
        self.capsules = self.path / "capsules"
        self.logs = self.path / "logs"
        self.profile = self.path / "profile"
        self.model = self.path / "model"
        self.curves = self.path / "curves.png"
        self.eval = self.path / "eval"
        self.from_python = self.path / FROM_PYTHON

    def refuse_other(self, config_yaml: str, *, job: str, resume: str) -> None:
        """Raise where the folder belongs to another run.

        A folder whose run never logged a step, saved or exported anything is free: there is nothing to lose.

        Args:
            config_yaml: this run's configuration.
            job: this run's command, "train" or "sft".
            resume: ``trainer.resume``.

        Raises:
            ValueError: the folder holds a run with another or no configuration, or a run at all under ``resume=never``.
        """
        old = self.config.read_text(errors="replace") if self.config.exists() else ""
        if not self._is_used():
            if old and not old.startswith("# verl-like "):
                raise ValueError(
                    f"{self.config} was written by no run, and would be replaced. Choose another "
                    f"trainer.experiment_name."
                )
            return
        refuse_recorded(str(self.path), old, config_yaml, job=job, resume=resume)

    def refuse_replacing(self, place: str, other: str) -> None:
        """Raise where ``place`` holds, by its ``config.yaml``, another run than this folder, whose files it would
        replace.
        """
        own = self.config.read_text(errors="replace") if self.config.exists() else ""
        if own:
            refuse_recorded(place, other, own, job=own.splitlines()[0].removeprefix("# verl-like "), resume="auto")

    def claim(self, config_yaml: str, *, job: str) -> None:
        """Make the folder this run's: record its command and configuration in config.yaml, less its secrets,
        which a file for the owner alone has.
        """
        for folder in (self.checkpoints, self.samples):
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
        old = self.config.read_text(errors="replace") if self.config.exists() else ""
        text, secrets = without_secrets(with_earlier_starts(config_yaml, old))
        if secrets:
            write_atomically(self.path / SECRETS, yaml.safe_dump(secrets, allow_unicode=True), mode=OWNER_ONLY)
        else:
            (self.path / SECRETS).unlink(missing_ok=True)
        write_atomically(self.config, _first_line(job) + text, mode=OWNER_ONLY)

    def _is_used(self) -> bool:
        is_logged = self.metrics.exists() and self.metrics.stat().st_size > 0
        return is_logged or self.model.exists() or any(self.checkpoints.glob("step_*"))


def refuse_recorded(place: str, old: str, config_yaml: str, *, job: str, resume: str) -> None:
    """Raise where ``place`` holds another run than this one, or ``trainer.resume=never`` wants it to hold none.

    Args:
        place: for people.
        old: the ``config.yaml`` that lies there, empty where there is none.
        config_yaml: this run's configuration.
        job: this run's command, "train" or "sft".
        resume: ``trainer.resume``.

    Raises:
        ValueError: what is there and what to do.
    """
    remedy = "Choose another trainer.experiment_name, or delete the folder."
    if resume == "never":
        raise ValueError(f"{place} holds a run already and trainer.resume=never. {remedy}")
    try:
        recorded = load(old)
    except yaml.YAMLError:  # damaged
        recorded = None
    if not isinstance(recorded, dict):
        raise ValueError(
            f"{place} holds metrics, checkpoints or a model, but no config.yaml that says of which run. {remedy}"
        )
    recorded = _filled(recorded, asdict(Config()))
    differences = _differences(masked(recorded), masked(yaml.safe_load(config_yaml)))
    if not old.startswith(_first_line(job)):
        differences.insert(0, f"the command ({old.splitlines()[0].removeprefix('# ')} there, verl-like {job} here)")
    if differences:
        raise ValueError(f"{place} is the folder of another run; it differs in {'; '.join(differences[:5])}. {remedy}")


def _filled(recorded: dict[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """A run's configuration with the defaults of options that did not exist when it was recorded."""
    found = dict(recorded)
    for key, default in defaults.items():
        value = found.setdefault(key, default)
        if isinstance(default, Mapping) and default and isinstance(value, dict):
            found[key] = _filled(value, default)
    return found


def _first_line(job: str) -> str:
    return f"# verl-like {job}\n"


def _differences(old: dict[str, object], new: dict[str, object], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key in sorted(set(old) | set(new)):
        if not prefix and key in MAY_CHANGE:
            continue
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differences(a, b, f"{prefix}{key}.")
        elif a != b and not (
            holds_mask(a) or holds_mask(b)
        ):  # a secret may be another one, or masked by one side alone
            found.append(f"{prefix}{key} ({a} there, {b} here)")
    return found
