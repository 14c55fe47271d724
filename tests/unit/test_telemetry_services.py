"""Tracking services: their reports, the continuation of a run in them, and that none of them stops or delays a run.

The real packages are in no lock; a test of one that is not installed is skipped with the reason.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verl_like.call_threads import CallThreads
from verl_like.checks.rules import LOGGERS
from verl_like.checks.rules import SERVICES as CHECKED
from verl_like.config.schema import Config, TrainerConfig
from verl_like.context import current
from verl_like.telemetry import background_tracker, loggers
from verl_like.telemetry.background_tracker import BackgroundTracker
from verl_like.telemetry.loggers import NAMES, trackers
from verl_like.telemetry.sample_rows import COLUMNS
from verl_like.telemetry.services import SERVICES


def config_with(*names: str) -> Config:
    return Config(trainer=TrainerConfig(project_name="project", experiment_name="a_run", loggers=list(names)))


class Recorder:
    """A service that takes reports; it fails or waits where a test says so."""

    def __init__(self, *, refuses: int = 0, waits_for: threading.Event | None = None) -> None:
        self.taken: list[tuple[int, dict[str, float]]] = []
        self.truncated, self.is_closed, self.threads = -1, False, {threading.get_ident()}
        self._refuses, self._waits_for = refuses, waits_for

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.threads.add(threading.get_ident())
        if self._waits_for is not None:
            self._waits_for.wait(30)
        if step <= self._refuses:
            raise ConnectionError(f"no route to the service of step {step}")
        self.taken.append((step, dict(metrics)))

    def truncate_after(self, step: int) -> None:
        self.truncated = step

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed = True


def opened(recorders: list[Recorder], **settings: Any) -> Recorder:
    recorders.append(Recorder(**settings))
    return recorders[-1]


def test_a_service_gets_every_report_in_sequence_on_one_thread_that_is_not_the_runs() -> None:
    recorders: list[Recorder] = []
    tracker = BackgroundTracker("service", lambda: opened(recorders))
    tracker.truncate_after(0)
    metrics = {"a/b": 1.0}
    for step in range(1, 51):
        metrics["a/b"] = float(step)
        tracker.log(step, metrics)
    metrics["a/b"] = -1.0  # the run's own; what was reported stays as it was
    tracker.close()
    (service,) = recorders
    assert service.taken == [(step, {"a/b": float(step)}) for step in range(1, 51)]
    assert service.truncated == 0 and service.is_closed
    assert len(service.threads) == 1 and threading.get_ident() not in service.threads


def test_requests_that_a_service_refuses_are_reported_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    recorders: list[Recorder] = []
    tracker = BackgroundTracker("service", lambda: opened(recorders, refuses=3))
    for step in range(1, 6):
        tracker.log(step, {})
    tracker.close()
    assert [step for step, _ in recorders[0].taken] == [4, 5] and recorders[0].is_closed
    assert caplog.text.count("no route to the service") == 1
    assert "service did not take 3 reports; the run's files contain them" in caplog.text


def test_a_service_that_cannot_be_opened_is_reported_and_the_run_continues(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Recorder:
        raise SystemExit("no API key")  # as swanlab leaves

    tracker = BackgroundTracker("service", refuse)
    tracker.log(1, {})
    tracker.close()
    assert "service could not be opened, and the run continues: SystemExit: no API key" in caplog.text
    assert "service did not take 1 reports" in caplog.text


def test_neither_start_nor_step_nor_end_waits_for_a_service_that_hangs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_tracker, "MAX_WAITING", 10)
    answer = threading.Event()

    def open_late() -> Recorder:
        answer.wait(30)
        return Recorder()

    started = time.monotonic()
    tracker = BackgroundTracker("service", open_late, open_s=0.1, close_s=0.1)
    for step in range(1, 16):
        tracker.log(step, {})
    tracker.close()
    took_s = time.monotonic() - started
    hanging = current(CallThreads).abandoned()  # so that the command does not wait for its libraries' exit handlers
    answer.set()
    assert took_s < 5 and hanging == ["tracker service"]
    deadline = time.monotonic() + 20
    while current(CallThreads).abandoned():  # once the service answers, its thread takes what is left and ends
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "service has not answered within 0.1 s" in caplog.text
    assert "service has 10 reports queued" in caplog.text
    assert "service has not taken 15 reports within 0.1 s of the end" in caplog.text


def test_a_service_that_is_late_at_the_end_and_catches_up_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_tracker, "MAX_WAITING", 10)
    recorders: list[Recorder] = []
    answer = threading.Event()

    def open_late() -> Recorder:
        answer.wait(30)
        return opened(recorders)

    tracker = BackgroundTracker("service", open_late, open_s=0.1, close_s=10)
    for step in range(1, 11):
        tracker.log(step, {})
    threading.Timer(0.2, answer.set).start()
    tracker.close()
    assert len(recorders[0].taken) == 10 and recorders[0].is_closed and current(CallThreads).abandoned() == []


def test_the_rules_the_table_and_the_extras_name_the_same_services() -> None:
    assert tuple(SERVICES) == CHECKED and NAMES == LOGGERS


@pytest.mark.parametrize("name", SERVICES)
def test_a_missing_package_names_the_extra(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed here, so its absence cannot be tried")
    with pytest.raises(
        ValueError,
        match=rf"trainer.loggers names {name}, which is not installed. Run `pip install 'verl_like\[{name}\]'`",
    ):
        trackers(config_with("jsonl", name), tmp_path, total_steps=1)


class FakeService:
    """wandb, mlflow, swanlab and trackio as far as the trackers use them: remembers calls, gives out ids and names."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []
        self.info = SimpleNamespace(run_id="server-made")
        self.name = "a_run-2"  # as trackio calls a second run of the name

    def init(self, **settings: Any) -> FakeService:
        self.calls.append(("init", settings.get("id", settings["name"]), settings["resume"]))
        return self

    def start_run(self, run_id: str | None, run_name: str) -> FakeService:
        self.calls.append(("start", run_id, run_name))
        return self

    def log(self, row: dict[str, float], step: int | None = None) -> None:
        self.calls.append(("log", row.get("step", step), row))

    def log_metrics(self, row: dict[str, float], step: int) -> None:
        self.calls.append(("log", step, row))

    def Settings(self, **settings: Any) -> None: ...  # noqa: N802

    def define_metric(self, name: str, step_metric: str | None = None) -> None: ...

    def set_experiment(self, name: str) -> None: ...

    def Table(self, columns: list[str], data: list[list[Any]]) -> dict[str, list[Any]]:  # noqa: N802
        return {name: [row[place] for row in data] for place, name in enumerate(columns)}

    def log_table(self, data: dict[str, list[Any]], artifact_file: str) -> None:
        self.calls.append(("table", artifact_file, data))

    def log_dict(self, fields: dict[str, Any], name: str) -> None: ...

    def finish(self) -> None:
        self.calls.append(("end", None, None))

    end_run = finish


@pytest.mark.parametrize("name", SERVICES)
def test_a_continued_run_uses_the_same_service_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService()
    monkeypatch.setattr(loggers, "package", lambda package: service)
    for step in (1, 2):
        with trackers(config_with(name), tmp_path, total_steps=2) as tracker:
            tracker.log(step, {"val/mean@4": 0.5})
    first, second = (call for call in service.calls if call[0] in ("init", "start"))
    known_by = (tmp_path / ("trackio_run_name" if name == "trackio" else f"{name}_run_id")).read_text()
    assert second[1] == known_by
    assert first[1] in {"mlflow": (None,), "trackio": ("a_run",)}.get(name, (known_by,))  # who makes a new run's id
    if name == "trackio":  # another folder's run may have the name
        assert (first[2], second[2]) == ("never", "allow")
    logged = [call for call in service.calls if call[0] == "log"]
    assert [call[1] for call in logged] == [1, 2]
    assert ("val/mean_at_4" if name == "mlflow" else "val/mean@4") in logged[0][2]
    assert sum(call[0] == "end" for call in service.calls) == 2


@pytest.mark.parametrize("name", SERVICES)
def test_services_that_show_tables_have_a_row_for_each_response(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService()
    monkeypatch.setattr(loggers, "package", lambda package: service)
    with trackers(config_with(name), tmp_path, total_steps=2) as tracker:
        tracker.log_samples(3, "train", [{"response": "a", "score": 1.0}, {"response": "b", "score": None}])
    shown = [call for call in service.calls if call[0] in ("log", "table")]
    if name not in ("wandb", "mlflow"):
        assert not shown
        return
    [(_, where, table)] = shown
    assert where == (3 if name == "wandb" else "samples/train_step_3.json")
    table = table["samples/train"] if name == "wandb" else table
    assert list(table) == list(COLUMNS)
    assert (table["response"], table["score"], table["advantage"]) == (["a", "b"], [1.0, None], [None, None])


REAL = """
import sys
from pathlib import Path
from verl_like.config.schema import Config, TrainerConfig
from verl_like.telemetry.loggers import trackers
name, folder = sys.argv[1], Path(sys.argv[2])
trainer = TrainerConfig(project_name="project", experiment_name="a_run", loggers=["jsonl", name])
for step in (1, 2):
    with trackers(Config(trainer=trainer), folder, total_steps=2) as tracker:
        tracker.truncate_after(step - 1)
        tracker.log(step, {"val/mean@4": 0.5 * step, "actor/loss": float("nan")})
if name == "trackio":
    from trackio.sqlite_storage import SQLiteStorage
    print([(row["step"], row["val/mean@4"]) for row in SQLiteStorage.get_logs("project", "a_run")])
"""


@pytest.mark.parametrize("name", ["swanlab", "trackio"])
def test_the_real_package_keeps_what_a_run_and_its_continuation_report(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is an extra that no lock holds; `pip install {name}` to try it")
    places = {"SWANLAB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio"), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", REAL, name, str(tmp_path / "run")]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path)), **places}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert "the run continues" not in found.stderr and "did not take" not in found.stderr, found.stderr
    if name == "trackio":
        assert found.stdout.splitlines()[-1] == "[(1, 0.5), (2, 1.0)]"
    else:
        run_id = (tmp_path / "run" / "swanlab_run_id").read_text()
        kept = sorted((tmp_path / "run" / "swanlog").glob(f"run-*-{run_id}/run-{run_id}.swanlab"))
        assert len(kept) == 2 and all(b"val/mean@4" in file.read_bytes() for file in kept)
