"""The run folder: the files that a run writes, and the run that they belong to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import yaml

from verl_like.checks.checkpoints import steps_in
from verl_like.checks.manifest import damage
from verl_like.config.hidden import NAME as SECRETS
from verl_like.config.hidden import holds_mask, without_secrets
from verl_like.config.run_file import damage_of, damage_of_file, first_line, recorded_text, with_earlier_starts
from verl_like.config.schema import Config
from verl_like.config.user_code import FROM_PYTHON
from verl_like.config.yaml_text import load_again
from verl_like.disk import writing
from verl_like.masking import OWNER_ONLY, masked
from verl_like.telemetry.trackers import read_metrics, write_atomically

log = logging.getLogger(__name__)

# Sections that may change between a run and its continuation; all others must be equal.
MAY_CHANGE = {"trainer", "cluster"}


class RunFolder:
    """``output_dir/experiment_name`` with config.yaml, metrics.jsonl, checkpoints/, logs/ and similar entries.

    The others are tensorboard/, samples/, capsules/, profile/ and model/. Evaluations write only below ``eval/``, so
    that they can use a training run's folder.
    """

    def __init__(self, config: Config) -> None:
        # Absolute, because workers with other working directories write there too.
        self.path = Path(config.trainer.output_dir).expanduser().absolute() / config.trainer.experiment_name
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.samples = self.path / "samples"
        self.snapshots = self.path / "capsules"
        self.logs = self.path / "logs"
        self.profile = self.path / "profile"
        self.model = self.path / "model"
        self.curves = self.path / "curves.png"
        self.report = self.path / "report.html"
        self.eval = self.path / "eval"
        self.from_python = self.path / FROM_PYTHON

    def refuse_other(self, config_yaml: str, *, job: str, resume: str) -> None:
        """Raise if the folder belongs to another run.

        A folder whose run never logged a step, saved or exported anything is free, because nothing can be lost. If its
        config.yaml is missing or damaged, ``resume`` may name one of its checkpoints; then the folder counts as this
        run's.

        Args:
            config_yaml: this run's configuration.
            job: this run's command, "train" or "sft".
            resume: ``trainer.resume``.

        Raises:
            ValueError: the folder holds a run with another or no configuration, or any run under ``resume=never``.
        """
        if not self._is_used():
            old = self.config.read_text(errors="replace") if self.config.is_file() else ""
            if old and not old.startswith("# verl-like "):
                raise ValueError(
                    f"{self.config} was not written by a run, and would be replaced. Choose another "
                    "trainer.experiment_name."
                )
            return
        reason = self._config_damage()
        if reason is not None and resume != "never":
            if Path(resume).expanduser().absolute().parent.resolve() == self.checkpoints.resolve():
                log.warning("%s %s; this command rewrites it", self.config, reason)
                return
            raise ValueError(self._damaged(reason))
        old = self.config.read_text() if reason is None else ""
        refuse_recorded(str(self.path), old, config_yaml, job=job, resume=resume)

    def _config_damage(self) -> str | None:
        """Return the damage of config.yaml as the end of a sentence, or None if there is none."""
        if not self.config.exists():
            return "is missing"
        reason = damage_of_file(self.config)
        return None if reason is None else f"is damaged ({reason})"

    def _damaged(self, reason: str) -> str:
        steps = [step for step in steps_in(self.checkpoints) if damage(self.checkpoints / f"step_{step}") is None]
        resume = f"trainer.resume={self.checkpoints}/step_{steps[-1]}" if steps else ""
        hint = f" If it is the folder of this run, {resume} continues it and rewrites the file." if resume else ""
        return (
            f"{self.config} {reason}, so the run of this folder is unknown. "
            f"Put a copy of the file there.{hint} For another run, choose another trainer.experiment_name."
        )

    def refuse_replacing(self, source: str, other: str) -> None:
        """Raise if this folder is not of the run of ``other``, the ``config.yaml`` of ``source`` to copy from."""
        if self._config_damage() is None:
            own = self.config.read_text()
            refuse_recorded(source, other, own, job=own.splitlines()[0].removeprefix("# verl-like "), resume="auto")

    def claim(self, config_yaml: str, *, job: str) -> None:
        """Assign the folder to this run: record its command and configuration in config.yaml.

        Secrets are left out; they go to a file that only the owner can read.
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
        write_atomically(self.config, recorded_text(job, text), mode=OWNER_ONLY)

    def repair(self, config_yaml: str, *, job: str) -> None:
        """Rewrite config.yaml if it is missing or damaged."""
        if self._config_damage() is not None:
            self.claim(config_yaml, job=job)

    def warn_of_lost_metrics(self, step: int) -> None:
        """Warn if metrics of finished steps up to this one are missing, because they cannot be recovered.

        Steps before the first logged one are not counted: the run may have started from another run's checkpoint.
        """
        logged = set().union(*read_metrics(self.metrics).values())
        lost = sorted(set(range(min(logged, default=1), step + 1)) - logged)
        if lost:
            log.warning(
                "%s lacks %d of %d finished steps, the first of them step %d. The run continues, and its curves lack "
                "these steps. To keep them, put a copy of the file there first.",
                self.metrics,
                len(lost),
                step,
                lost[0],
            )

    def _is_used(self) -> bool:
        is_logged = self.metrics.exists() and self.metrics.stat().st_size > 0
        return is_logged or self.model.exists() or any(self.checkpoints.glob("step_*"))


def refuse_recorded(location: str, old: str, config_yaml: str, *, job: str, resume: str) -> None:
    """Raise if ``location`` holds another run than this one, or any run under ``trainer.resume=never``.

    Args:
        location: path or URL of the folder, for messages.
        old: its ``config.yaml``, empty if there is none.
        config_yaml: this run's configuration.
        job: this run's command, "train" or "sft".
        resume: ``trainer.resume``.

    Raises:
        ValueError: the folder holds such a run; the message gives a remedy.
    """
    remedy = "Choose another trainer.experiment_name, or move the folder away."
    if resume == "never":
        raise ValueError(f"{location} already holds a run, and trainer.resume=never. {remedy}")
    reason = damage_of(old.encode(errors="replace"))
    if reason is not None:
        raise ValueError(
            f"{location} holds metrics, checkpoints or a model, but its config.yaml, which identifies the run, is "
            f"missing or damaged ({reason}). Put a copy of the file there, or choose another trainer.experiment_name."
        )
    recorded = _filled(load_again(old), asdict(Config()))
    differences = _differences(masked(recorded), masked(load_again(config_yaml)))
    if not old.startswith(first_line(job)):
        differences.insert(0, f"the command ({old.splitlines()[0].removeprefix('# ')} there, verl-like {job} here)")
    if differences:
        raise ValueError(
            f"{location} is the folder of another run; it differs in {'; '.join(differences[:5])}. {remedy}"
        )


def _filled(recorded: dict[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """Return a run's configuration, with defaults for options that did not exist when it was recorded."""
    found = dict(recorded)
    for key, default in defaults.items():
        value = found.setdefault(key, default)
        if isinstance(default, Mapping) and default and isinstance(value, dict):
            found[key] = _filled(value, default)
    return found


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
        ):  # a secret may have changed, or be masked on one side only
            found.append(f"{prefix}{key} ({a} there, {b} here)")
    return found
