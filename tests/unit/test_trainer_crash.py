"""An unexpected error ends in one line, and its full traceback is in the run folder."""

from __future__ import annotations

import errno
import runpy
from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError
from torch.distributed.checkpoint.api import CheckpointException

from verl_like import cli
from verl_like.imports import importing
from verl_like.runs.crash import crash_report, innermost


def raised(error: BaseException, *causes: BaseException) -> BaseException:
    """Return the first error, raised from the second, which was raised from the third, and so on."""
    try:
        if not causes:
            raise error
        try:
            raise raised(causes[0], *causes[1:])
        except BaseException as cause:
            raise error from cause
    except BaseException as arrived:  # noqa: BLE001
        return arrived


def test_the_innermost_cause_is_reported_with_the_file_of_the_traceback(tmp_path: Path) -> None:
    line = crash_report(
        raised(RuntimeError("outer"), KeyError("middle"), AttributeError("inner\nsecond line")), tmp_path
    )
    [file] = (tmp_path / "crashes").iterdir()
    assert line.startswith(f"AttributeError: inner. {file} contains the traceback. This is a bug in verl-like")
    assert "\n" not in line
    assert all(part in file.read_text() for part in ("outer", "middle", "inner\nsecond line", "Traceback"))


def test_what_was_raised_while_another_was_handled_is_not_the_first() -> None:
    second = RuntimeError("second")
    second.__context__ = OSError("first")
    assert str(innermost(second)) == "first"
    second.__suppress_context__ = True  # raised "from None"
    assert innermost(second) is second


def test_errors_that_name_each_other_end(tmp_path: Path) -> None:
    a, b = RuntimeError("a"), RuntimeError("b")
    a.__cause__, b.__cause__ = b, a
    assert "RuntimeError" in crash_report(a, tmp_path)


def test_a_checkpoint_error_says_what_happened_on_the_rank(tmp_path: Path) -> None:
    inner = RuntimeError("PytorchStreamWriter failed")
    line = crash_report(raised(CheckpointException("write", {1: (inner, None)})), tmp_path)
    assert line.startswith("RuntimeError: PytorchStreamWriter failed. ")


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            ("cannot be written: No space left on device", "Free space"),
        ),
        (OSError(errno.EROFS, "Read-only file system"), ("cannot be written: Read-only file system", "writable")),
        (OutOfMemoryError("Task was killed due to the node running low on memory."), ("Lower the batch",)),
        (ActorDiedError(), ("the same command continues from the last checkpoint",)),
        (MemoryError(), ("MemoryError.", "Lower the batch")),
        (ConnectionResetError(104, "Connection reset by peer"), ("continues from the last checkpoint",)),
    ],
)
def test_remedies_are_printed(error: BaseException, parts: tuple[str, ...], tmp_path: Path) -> None:
    line = crash_report(raised(RuntimeError("outer"), error), tmp_path)
    assert all(part in line for part in parts), line
    assert "bug in verl-like" not in line


def test_a_package_of_another_build_sends_to_the_doctor(tmp_path: Path) -> None:
    (tmp_path / "odd_build.py").write_text("raise RuntimeError('operator odd_build::nms does not exist')\n")

    def imported() -> None:
        with importing():
            runpy.run_path(str(tmp_path / "odd_build.py"))

    with pytest.raises(ImportError, match=r"loaded: RuntimeError: operator .* Run `verl-like doctor`") as found:
        imported()
    line = crash_report(found.value, tmp_path)
    assert line.startswith("RuntimeError: operator odd_build::nms does not exist. ")
    assert line.endswith("A package cannot be loaded; `verl-like doctor` prints the remedy.")


def test_rays_own_wrapping_is_taken_off(tmp_path: Path) -> None:
    inner = ZeroDivisionError("division by zero")
    line = crash_report(RayTaskError("score", "Traceback ...", inner), tmp_path)
    assert line.startswith("ZeroDivisionError: division by zero. ")


def test_where_nothing_can_be_written_the_traceback_is_shown(tmp_path: Path) -> None:
    (tmp_path / "crashes").write_text("a file")
    assert "Traceback (most recent call last)" in crash_report(raised(RuntimeError("x")), tmp_path)


def test_a_command_ends_with_1_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(command: str, composed: object, row: int) -> str:
        raise CheckpointException("read", {0: (RuntimeError("not a zip archive"), None)})

    monkeypatch.setattr(cli, "_job", broken)
    monkeypatch.setattr(cli, "_read", lambda arguments: (cli_composed(tmp_path), []))
    monkeypatch.setattr(cli, "_checked", lambda arguments, composed, unread: [])
    assert cli.main(["train"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: RuntimeError: not a zip archive. ") and message.count("\n") == 1


def cli_composed(out: Path) -> object:
    from verl_like.config.compose import compose

    return compose(None, [f"trainer.output_dir={out}"])
