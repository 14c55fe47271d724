"""The command around the checks of ``benchmarks.gpu_check``: verdicts, deadlines, table, JSON."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check import play as player
from benchmarks.gpu_check.checks import CHECKS, Check
from benchmarks.gpu_check.kernel_time import kind_of
from benchmarks.gpu_check.play import play
from benchmarks.gpu_check.scene import Scene, scene_from_json, temporary
from benchmarks.gpu_check.table import KEYS, line, summary
from benchmarks.gpu_check.verdict import FAILED, HELD, SHORT, SKIPPED, Findings, Outcome, formatted

ROOT = Path(__file__).parents[2]
NOT_ON_A_BARE_MACHINE = ("ray", "vllm", "hydra", "omegaconf", "pytest", "pyarrow", "psutil")


@pytest.fixture
def scene() -> Iterator[Scene]:
    with temporary(device="cpu", num_gpus=0, is_small=True) as scene:
        yield scene


def fake(name: str, limit_s: float = 30.0) -> Check:
    return Check(name=name, limit_s=limit_s, is_worker=False, folder="tests.unit._gpu_checks")


def played(name: str, scene: Scene, limit_s: float = 30.0) -> Outcome:
    return play(fake(name), scene, limit_s=limit_s)


def test_a_figure_within_its_bounds_is_no_problem_and_nan_is_within_none() -> None:
    found = Findings()
    found.add("wake_s", 1.0, at_most=1.0, at_least=1.0)
    found.add("sleep_freed_gib", None, at_least=1.0)
    assert found.problems == []
    found.add("mfu", math.nan, at_least=0.0)
    found.add("wake_s", 2.5, at_most=1.0)
    assert found.problems == ["mfu nan, expected at least 0", "wake 2.5 s, expected at most 1"]


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("sync_gib_per_s", "sync 0.25 GiB/s"),
        ("0.5B_tokens_per_s", "0.5B 0.25 tokens/s"),
        ("sleep_freed_gib", "sleep freed 0.25 GiB"),
        ("gap_max_nats", "gap max 0.25 nats"),
        ("peak_vs_plan", "peak vs plan 0.25"),
    ],
)
def test_a_figure_is_reported_with_its_unit(name: str, reported: str) -> None:
    assert formatted(name, 0.25) == reported


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "verdict", "why"),
    [
        ("holds", HELD, ""),
        ("falls_short", SHORT, "mfu 0.1, expected at least 0.3"),
        ("skips", SKIPPED, "nothing to see here"),
        ("raises", FAILED, "ValueError: found a mouse, expected a cat"),
        ("kills_itself", FAILED, "ended with status -9"),
    ],
)
def test_a_check_ends_in_a_verdict(name: str, verdict: str, why: str, scene: Scene) -> None:
    outcome = played(name, scene)
    assert (outcome.verdict, outcome.why) == (verdict, why)


@pytest.mark.processes
def test_the_traceback_of_a_check_that_failed_is_reported(scene: Scene, capfd: pytest.CaptureFixture[str]) -> None:
    played("raises", scene)
    assert "Traceback" in (message := capfd.readouterr().err) and "and more" in message


@pytest.mark.slow
@pytest.mark.processes
def test_a_check_that_is_not_over_in_time_is_ended_with_its_children(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "GRACE_S", 0.5)
    outcome = played("hangs", scene, limit_s=5.0)
    assert (outcome.verdict, outcome.why) == (FAILED, "timed out after 5 s and was ended")
    child = int((scene.of("hangs") / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_check_names_the_packages_and_gpus_that_it_lacks(scene: Scene, tmp_path: Path) -> None:
    lacking = Check(name="x", limit_s=1.0, packages=("torch", "no_such_package"))
    assert lacking.why_not(scene) == "not installed: no_such_package"
    one_gpu = Scene(device="cuda", num_gpus=1, is_small=True, folder=tmp_path)
    assert Check(name="x", limit_s=1.0, num_ranks=2).why_not(one_gpu) == "needs 2 GPUs, found 1"
    assert Check(name="x", limit_s=1.0, on_gpu_only="nothing moves").why_not(one_gpu) == ""
    assert Check(name="x", limit_s=1.0, on_gpu_only="nothing moves").why_not(scene) == "nothing moves"
    assert play(lacking, scene, limit_s=1.0).verdict == SKIPPED


@pytest.mark.processes
@pytest.mark.parametrize(("names", "status"), [(["holds", "skips"], 0), (["falls_short"], 1), (["raises", "holds"], 1)])
def test_the_exit_status_is_1_where_a_check_falls_short_or_fails(names: list[str], status: int, scene: Scene) -> None:
    assert command.run([fake(name) for name in names], scene, limit_s=60.0) == status


@pytest.mark.processes
def test_each_check_has_a_line_and_the_last_line_is_json(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    command.run([fake("holds"), fake("falls_short")], scene, limit_s=60.0)
    *lines, last = capsys.readouterr().out.splitlines()
    assert sorted(each.split()[0] for each in lines) == ["falls_short", "holds"]
    found = json.loads(last)
    assert found["verdicts"] == {"holds": HELD, "falls_short": SHORT}
    assert found["whys"] == {"falls_short": "mfu 0.1, expected at least 0.3"}
    assert (found["wake_s"], found["mfu"], found["sync_gib_per_s"]) == (0.25, 0.1, None)
    assert found["device"] == "cpu" and found["seconds"] > 0 and set(KEYS) < found.keys()


def test_where_the_time_of_all_is_up_the_rest_is_skipped(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run([fake("holds")], scene, limit_s=1.0) == 0
    assert "skipped" in (message := capsys.readouterr().out) and "the 1 s of --limit-s are used up" in message


def test_a_line_has_the_reason_first_then_figures_and_notes() -> None:
    outcome = Outcome(
        name="update", verdict=SHORT, seconds=61.4, why="too slow", figures={"mfu": 0.1, "wake_s": None}, notes=["n"]
    )
    assert " ".join(line(outcome).split()) == "update fell short 61 s too slow; mfu 0.1; n"


def test_what_no_check_has_found_is_null() -> None:
    assert {summary([], device="cpu", seconds=0.0)[key] for key in KEYS} == {None}


def test_without_a_gpu_one_sentence_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "num_gpus", lambda: 0)
    for device in ("auto", "cuda"):
        assert command.main(["--device", device]) == 2
        message = capsys.readouterr()
        assert message.err == "found no GPU, expected at least one. --device cpu is a dry run with tiny models.\n"
        assert message.out == ""


def test_a_scene_is_passed_to_another_process_and_leaves_nothing(scene: Scene) -> None:
    assert scene_from_json(scene.to_json()) == scene
    with temporary(device="cpu", num_gpus=0, is_small=True) as other:
        (other.folder / "file").write_text("x")
    assert not other.folder.exists()


def test_each_check_has_its_file_and_one_line_in_the_table() -> None:
    files = {file.stem for file in (ROOT / "benchmarks/gpu_check/checks").glob("*.py")} - {"__init__"}
    assert sorted(files) == sorted(check.name for check in CHECKS)


@pytest.mark.processes
def test_ctrl_c_ends_the_check_under_way_and_removes_the_folder(tmp_path: Path) -> None:
    code = (
        "from benchmarks.gpu_check import __main__ as c, play; from tests.unit.test_gpu_check import fake;"
        "play.GRACE_S = 0.5;"
        "c.CHECKS = [fake('hangs', 600.0)]; c.num_gpus = lambda: 0; raise SystemExit(c.main(['--device', 'cpu']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, start_new_session=True
    )
    try:
        child = int(until(lambda: [file.read_text() for file in tmp_path.glob("*/hangs/child")]))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    finally:
        process.kill()
    assert list(tmp_path.iterdir()) == []
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def until(found: Callable[[], list[str]]) -> str:
    """Return the first text found within 30 s."""
    deadline = time.monotonic() + 30
    while not (texts := [text for text in found() if text]):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.05)
    return texts[0]


@pytest.mark.processes
@pytest.mark.slow
def test_checks_that_need_no_ray_and_no_vllm_load_and_run_without_them(scene: Scene) -> None:
    files = [f"benchmarks.gpu_check.checks.{check.name}" for check in CHECKS if not check.packages]
    assert len(files) >= 7
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({NOT_ON_A_BARE_MACHINE!r}));"
        f"import {', '.join(files)};"
        f"sys.argv = ['', 'benchmarks.gpu_check.checks', 'update', '0', {scene.to_json()!r}];"
        "from benchmarks.gpu_check.child import main; main()"
    )
    scene.of("update").mkdir()
    [update] = [check for check in CHECKS if check.name == "update"]
    environment = os.environ | player._environment(update, scene, 0, player._free_port())
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=240, env=environment)
    assert json.loads(player.outcome_of(scene.of("update"), 0).read_text())["figures"]["mfu"] > 0


@pytest.mark.processes
def test_the_command_itself_loads_nothing_heavy() -> None:
    code = "import benchmarks.gpu_check.__main__, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert not {"torch", "numpy", "transformers", "ray", "vllm", "hydra"} & set(loaded.split())


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("void pytorch_flash::flash_fwd_kernel<cutlass::bfloat16_t>", "attention"),
        ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_TNN", "products"),
        ("triton_red_fused__log_softmax_0", "triton"),
        ("_rms_norm_forward_kernel", "other"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
    ],
)
def test_kernels_are_counted_by_kind(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind
