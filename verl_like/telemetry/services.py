"""Tracking services: wandb, mlflow, swanlab, trackio. Each is an extra; a resumed run continues its run there."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from verl_like.config.schema import Config
from verl_like.masking import masked
from verl_like.telemetry.sample_rows import COLUMNS, SampleRow
from verl_like.telemetry.trackers import Tracker, write_atomically


def package(name: str) -> ModuleType:
    """Import the package of a service, which an extra installs.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ValueError(
            f"trainer.loggers names {name}, which is not installed. Run `pip install 'verl_like[{name}]'`, "
            f"or leave {name} out of trainer.loggers."
        ) from error


def _shown(config: Config) -> dict[str, Any]:
    """Return the configuration without its secrets: a service stores it, and other people read it there."""
    found: dict[str, Any] = masked(asdict(config))
    return found


def _own_id(path: Path) -> str:
    """Return the run's id at a service; make it on the first call."""
    if not path.exists():
        write_atomically(path, secrets.token_hex(4))
    return path.read_text()


class WandbTracker:
    """A run on wandb; a resumed run continues it by the id in the run folder."""

    def __init__(self, wandb: ModuleType, config: Config, run_dir: Path) -> None:
        self._table = wandb.Table
        self._run = wandb.init(
            project=config.trainer.project_name,
            name=config.trainer.experiment_name,
            id=_own_id(run_dir / "wandb_run_id"),
            resume="allow",
            dir=str(run_dir),
            config=_shown(config),
        )
        # wandb drops reports with a step below its own counter, such as those of a resumed run: use our own step axis.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"step": step, **metrics})

    def log_samples(self, step: int, of: str, rows: Sequence[SampleRow]) -> None:
        table = self._table(columns=list(COLUMNS), data=[[row.get(name) for name in COLUMNS] for row in rows])
        self._run.log({"step": step, f"samples/{of}": table})

    def keep_file(self, path: Path) -> None:
        self._run.save(str(path), base_path=str(path.parent), policy="now")

    def truncate_after(self, step: int) -> None:
        """Do nothing: wandb cannot delete logged steps. Repeated steps appear twice."""

    def close(self) -> None:
        self._run.finish()


class MlflowTracker:
    """A run on the server that ``MLFLOW_TRACKING_URI`` names; a resumed run continues it."""

    def __init__(self, mlflow: ModuleType, config: Config, run_dir: Path) -> None:
        self._mlflow = mlflow
        id_file = run_dir / "mlflow_run_id"
        self._mlflow.set_experiment(config.trainer.project_name)
        run = self._mlflow.start_run(
            run_id=id_file.read_text() if id_file.exists() else None, run_name=config.trainer.experiment_name
        )
        if not id_file.exists():
            write_atomically(id_file, run.info.run_id)
            self._mlflow.log_dict(_shown(config), "config.yaml")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        # mlflow does not allow @ in names.
        self._mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in metrics.items()}, step=step)

    def log_samples(self, step: int, of: str, rows: Sequence[SampleRow]) -> None:
        columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
        self._mlflow.log_table(data=columns, artifact_file=f"samples/{of}_step_{step}.json")

    def keep_file(self, path: Path) -> None:
        self._mlflow.log_artifact(str(path))

    def truncate_after(self, step: int) -> None:
        """Do nothing: mlflow cannot delete logged steps. Repeated steps appear twice."""

    def close(self) -> None:
        self._mlflow.end_run()


class SwanlabTracker:
    """A run on SwanLab, or in ``swanlog/`` of the run folder if ``SWANLAB_MODE`` is local or offline.

    A resumed run continues it by the id in the run folder.
    """

    def __init__(self, swanlab: ModuleType, config: Config, run_dir: Path) -> None:
        self._run = swanlab.init(
            project=config.trainer.project_name,
            name=config.trainer.experiment_name,
            id=_own_id(run_dir / "swanlab_run_id"),
            resume="allow",
            log_dir=str(run_dir / "swanlog"),
            config=_shown(config),
            # Otherwise SwanLab captures printed output, which disturbs the live display of a terminal.
            settings=swanlab.Settings(console={"proxy_type": "none"}),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def truncate_after(self, step: int) -> None:
        """Do nothing: SwanLab cannot delete logged steps, and keeps the first value of a repeated step."""

    def close(self) -> None:
        self._run.finish()


class TrackioTracker:
    """A run in trackio's own folder, or at ``TRACKIO_SPACE_ID`` or ``TRACKIO_SERVER_URL``.

    A resumed run continues it; trackio identifies a run by its name alone.
    """

    def __init__(self, trackio: ModuleType, config: Config, run_dir: Path) -> None:
        name_file = run_dir / "trackio_run_name"
        is_known = name_file.exists()
        self._run = trackio.init(
            project=config.trainer.project_name,
            name=name_file.read_text() if is_known else config.trainer.experiment_name,
            resume="allow" if is_known else "never",
            config=_shown(config),
            embed=False,
        )
        if not is_known:
            write_atomically(name_file, self._run.name)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def truncate_after(self, step: int) -> None:
        """Do nothing: trackio cannot delete logged steps. Repeated steps appear twice."""

    def close(self) -> None:
        self._run.finish()


SERVICES: dict[str, Callable[[ModuleType, Config, Path], Tracker]] = {
    "wandb": WandbTracker,
    "mlflow": MlflowTracker,
    "swanlab": SwanlabTracker,
    "trackio": TrackioTracker,
}
