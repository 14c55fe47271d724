"""A run is launched before it is known what it is to be: used by the first who asks for it, or ended."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.imports import importing
from verl_like.machine.packages import TORCHVISION_FOLDER
from verl_like.runs import launch
from verl_like.runs.launch import Launcher
from verl_like.telemetry.ledger import Ledger
from verl_like.watchdog.watch import BUILDING


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the fate of each launched run by its number."""
    events: list[str] = []

    @contextmanager
    def numbered(config: Config, *, generates: bool) -> Iterator[Any]:
        number = sum(event.endswith("begun") for event in events)
        events.append(f"{number} begun")
        try:
            yield number
        except ValueError as error:
            events.append(f"{number} saw {error}")
            raise
        finally:
            events.append(f"{number} ended")

    monkeypatch.setattr(launch, "_launch", numbered)
    return events


def test_an_unused_launched_run_ends_with_the_command(reported: list[str]) -> None:
    with pytest.raises(ValueError, match="no such column"), current(Launcher).launching(Config(), generates=True):
        raise ValueError("no such column")
    assert reported == ["0 begun", "0 saw no such column", "0 ended"]


def test_a_launched_run_goes_to_the_first_who_asks_and_ends_with_its_use(reported: list[str]) -> None:
    with current(Launcher).launching(Config(), generates=True):
        with pytest.raises(ValueError, match="lost"), current(Launcher).launched(Config(), generates=True):
            raise ValueError("lost" if reported == ["0 begun"] else f"{reported}")
        assert reported[1:] == ["0 saw lost", "0 ended"]
        with current(Launcher).launched(Config(), generates=True) as anew:  # as after a restart
            assert anew == 1
        assert reported[3:] == ["1 begun", "1 ended"]
    assert len(reported) == 5


def test_the_watchdog_lets_a_start_take_its_time_until_the_run_is_asked_for(reported: list[str]) -> None:
    with current(Launcher).launching(Config(), generates=True):
        assert current(Ledger).stage.partition("/")[0] in BUILDING
        with current(Launcher).launched(Config(), generates=True):
            assert current(Ledger).is_resting
    with current(Launcher).launching(Config(), generates=True):
        pass
    assert current(Ledger).is_resting


def test_a_run_is_launched_where_none_was(reported: list[str]) -> None:
    with current(Launcher).launched(Config(), generates=False) as had:
        assert had == 0
    assert reported == ["0 begun", "0 ended"]


@pytest.mark.parametrize("is_collecting", [True, False])
def test_what_is_imported_is_kept_from_the_collector(is_collecting: bool) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    frozen = gc.get_freeze_count()
    try:
        if not is_collecting:
            gc.disable()
        with suppress(ImportError), importing():
            is_collecting_meanwhile = gc.isenabled()
            kept = [Cycle() for _ in range(100)]
            raise ImportError
        assert (is_collecting_meanwhile, gc.isenabled()) == (False, is_collecting)
        assert gc.get_freeze_count() - frozen >= len(kept)
        assert not [each for each in gc.get_objects() if isinstance(each, Cycle)]
    finally:
        gc.enable()


def ended(code: str, folder: Path) -> str:
    """Return the output of a program that finds packages in ``folder`` first."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *filter(None, sys.path)))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


@pytest.mark.processes
def test_libraries_find_no_companion_of_torch_that_cannot_be_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "torchvision"
    folder.mkdir()
    (folder / "part.py").touch()
    (folder / "__init__.py").write_text("import torchvision.part\nraise RuntimeError('operator nms does not exist')\n")
    (tmp_path / "torchaudio.py").touch()
    code = """
import importlib.util, sys
from verl_like.imports import leave_out_unloadable
leave_out_unloadable()
leave_out_unloadable()
print([importlib.util.find_spec(name) is not None for name in ("torchvision", "torchaudio")])
print("torchvision.part" in sys.modules)
try:
    import torchvision
except ModuleNotFoundError:
    print("not installed, for all they know")
"""
    assert ended(code, tmp_path) == "[False, True]\nFalse\nnot installed, for all they know\n"


@pytest.mark.processes
@pytest.mark.skipif(PathFinder.find_spec("torchvision") is not None, reason="the installed torchvision is used")
@pytest.mark.parametrize("library", ["none", "of another torch"])
def test_a_torchvision_in_the_folder_of_the_set_up_is_found_and_imported_without_its_library(
    library: str, tmp_path: Path
) -> None:
    folder = tmp_path / TORCHVISION_FOLDER
    (folder / "torchvision").mkdir(parents=True)
    described = "for name in ('nms', 'qnms'): torch.library.register_fake(f'torchvision::{name}')(print)"
    (folder / "torchvision/__init__.py").write_text(f"import torch\n{described}\n")
    if library != "none":
        (folder / "torchvision/_C.so").write_text("no library")
    (folder / "torchvision-3.0.dist-info").mkdir()
    (folder / "torchvision-3.0.dist-info/METADATA").write_text("Name: torchvision\nVersion: 3.0\n")
    code = f"""
import importlib.metadata, sys
from verl_like.imports import leave_out_unloadable
sys.prefix = {str(tmp_path)!r}
leave_out_unloadable()
leave_out_unloadable()
print(importlib.metadata.version("torchvision"), "torchvision" in sys.modules, "torch" in sys.modules)
import torchvision
print(torchvision.__file__ == {str(folder / "torchvision/__init__.py")!r})
print({str(folder)!r} in sys.path, sum("_Finder" in repr(each) for each in sys.meta_path))
"""
    assert ended(code, tmp_path) == "3.0 False False\nTrue\nFalse 1\n"


@pytest.mark.processes
@pytest.mark.parametrize("name", ["triton", "other"])
def test_what_triton_calls_leaked_at_the_end_is_let_go(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("class Cycle:\n    def __del__(self): print('let go', flush=True)\n")
    code = f"""
from verl_like.imports import importing
with importing():
    import {name}
    cycle = {name}.Cycle()
    cycle.itself = cycle
"""
    assert ended(code, tmp_path) == ("let go\n" if name == "triton" else "")
