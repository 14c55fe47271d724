"""The scorer process: whatever a reward function does, each sample gets one outcome and no failure becomes a score."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from verl_like.reward.sandbox import ScorerProcess

# The response chooses what the function does.
SCORER = """
import asyncio, os, subprocess, sys, time

calls = 0

def score(data_source, solution_str, ground_truth, extra_info, bonus=0.0):
    global calls
    calls += 1
    if solution_str == "loop":
        while True:
            pass
    if solution_str == "power":
        return 9**9**9**9
    if solution_str == "sleep":
        time.sleep(1000)
    if solution_str == "exit":
        os._exit(3)
    if solution_str == "sys.exit":
        sys.exit(4)
    if solution_str == "segfault":
        os.kill(os.getpid(), 11)
    if solution_str == "raise":
        raise RuntimeError("cannot grade this")
    if solution_str == "nan":
        return float("nan")
    if solution_str == "none":
        return None
    if solution_str == "calls":
        return calls
    if solution_str == "grandchild":
        child = subprocess.Popen(["sleep", "1000"])
        open(extra_info["pid_file"], "w").write(str(child.pid))
        time.sleep(1000)
    if solution_str == "print":
        print("x" * 100_000)
        sys.stdout.flush()
    return {"score": bonus + float(solution_str == ground_truth), "pred": solution_str}

async def score_async(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(1000 if solution_str == "sleep" else 0)
    return 1.0
"""


def sample(response: str, truth: str = "42", **extra: Any) -> dict[str, Any]:
    return {"data_source": "s", "solution_str": response, "ground_truth": truth, "extra_info": extra}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("reward") / "scorer.py"
    path.write_text(SCORER)
    return str(path)


@pytest.fixture
def scorer(file: str) -> Iterator[ScorerProcess]:
    with ScorerProcess(f"{file}:score", {}, timeout_s=1.0) as process:
        yield process


def eventually(claim: Callable[[], bool], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.02)
    return claim()


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def child_pids() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_a_score_comes_back_with_its_details(scorer: ScorerProcess) -> None:
    outcome = scorer.score(sample("42"))
    assert (outcome.status, outcome.score, outcome.details) == ("ok", 1.0, {"pred": "42"})
    assert 0 <= outcome.seconds < 1.0


def test_function_kwargs_reach_the_function(file: str) -> None:
    with ScorerProcess(f"{file}:score", {"bonus": 2.0}, timeout_s=5) as scorer:
        assert scorer.score(sample("42")).score == 3.0


@pytest.mark.parametrize("response", ["loop", "power", "sleep"])
def test_past_its_deadline_a_sample_is_a_timeout_and_the_next_one_is_scored(scorer: ScorerProcess, response: str) -> None:
    started = time.monotonic()
    outcome, after = scorer.score_many([sample(response), sample("42")])
    assert (outcome.status, outcome.score) == ("timeout", None) and "reward.timeout_s=1" in outcome.message
    assert after.score == 1.0
    assert time.monotonic() - started < 1.0 + 2.0, "the spare must take over at once"


@pytest.mark.parametrize(("response", "message"), [("exit", "exited with code 3"), ("segfault", "was killed by SIGSEGV")])
def test_a_process_that_dies_is_a_crash_and_the_next_sample_is_scored(scorer: ScorerProcess, response: str, message: str) -> None:
    outcome, after = scorer.score_many([sample(response), sample("42")])
    assert (outcome.status, outcome.score) == ("crash", None) and message in outcome.message
    assert after.score == 1.0


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ("raise", "RuntimeError: cannot grade this"),
        ("sys.exit", "SystemExit: 4"),
        ("nan", "returned nan"),
        ("none", r"returned None (NoneType)"),
    ],
)
def test_a_function_that_raises_or_returns_no_number_is_an_error_without_a_score(
    scorer: ScorerProcess, response: str, message: str
) -> None:
    outcome, calls = scorer.score_many([sample(response), sample("calls")])
    assert (outcome.status, outcome.score) == ("error", None) and message in outcome.message
    assert calls.score == 2.0, "an error does not cost the process"


def test_printing_does_not_disturb_the_answers(scorer: ScorerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    outcomes = list(scorer.score_many([sample("print", "print"), sample("42")]))
    assert [outcome.score for outcome in outcomes] == [1.0, 1.0]


def test_every_sample_of_a_poisoned_batch_gets_its_own_outcome_in_order(scorer: ScorerProcess) -> None:
    responses = ["42", "loop", "43", "exit", "exit", *["42"] * 100, "raise", "power", "42"]
    outcomes = list(scorer.score_many([sample(response) for response in responses]))
    statuses = {"loop": "timeout", "power": "timeout", "exit": "crash", "raise": "error"}
    assert [outcome.status for outcome in outcomes] == [statuses.get(response, "ok") for response in responses]
    assert [o.score for o in outcomes if o.status == "ok"] == [float(r == "42") for r in responses if r not in statuses]


def test_results_stream_while_later_samples_run(scorer: ScorerProcess) -> None:
    started = time.monotonic()
    stream = scorer.score_many([sample("42"), sample("sleep")])
    assert next(stream).score == 1.0 and time.monotonic() - started < 0.9
    assert next(stream).status == "timeout"


def test_an_abandoned_stream_does_not_answer_for_later_samples(scorer: ScorerProcess) -> None:
    stream = scorer.score_many([sample("42"), sample("42"), sample("42")])
    next(stream)
    del stream
    assert scorer.score(sample("wrong")).score == 0.0


def test_a_process_killed_while_idle_costs_no_sample(scorer: ScorerProcess) -> None:
    scorer.score(sample("42"))
    for pid in child_pids():
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not any(is_running(pid) for pid in child_pids()))
    assert scorer.score(sample("42")).status == "ok"


def test_async_functions_are_awaited_and_time_out(file: str) -> None:
    with ScorerProcess(f"{file}:score_async", {}, timeout_s=0.5) as scorer:
        assert [outcome.status for outcome in scorer.score_many([sample("a"), sample("sleep"), sample("b")])] == ["ok", "timeout", "ok"]


def test_an_empty_name_chooses_per_row() -> None:
    rows = [
        sample("#### 42") | {"data_source": "gsm8k"},
        sample("42") | {"data_source": "exact_match"},
        sample("42") | {"data_source": "unknown"},
    ]
    with ScorerProcess("", {}, timeout_s=5) as scorer:
        outcomes = list(scorer.score_many(rows))
    assert [outcome.score for outcome in outcomes] == [1.0, 1.0, None]
    assert outcomes[2].status == "error" and "known are" in outcomes[2].message


@pytest.mark.parametrize(
    ("function", "kwargs", "message"),
    [
        ("nowhere.py:score", {}, "does not exist"),
        ("{file}:missing", {}, "defines no 'missing'"),
        ("{file}:score", {"bonsu": 1.0}, "unexpected keyword argument 'bonsu'"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_at_the_start(file: str, function: str, kwargs: dict[str, Any], message: str) -> None:
    before = child_pids()
    with pytest.raises(ValueError, match=message):
        ScorerProcess(function.format(file=file), kwargs, timeout_s=5)
    assert child_pids() == before


def test_a_file_that_kills_the_process_on_import_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import os\nos._exit(9)\n")
    with pytest.raises(RuntimeError, match=r"exited with code 9 before its function was loaded"):
        ScorerProcess(f"{tmp_path}/bad.py:score", {}, timeout_s=5)


def test_close_leaves_no_process_and_no_descriptor(file: str) -> None:
    processes, descriptors = child_pids(), psutil.Process().num_fds()
    with ScorerProcess(f"{file}:score", {}, timeout_s=0.3) as scorer:
        list(scorer.score_many([sample("loop"), sample("exit"), sample("42")]))
    assert child_pids() == processes and psutil.Process().num_fds() == descriptors


def test_a_timeout_also_ends_what_the_function_has_started(scorer: ScorerProcess, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert scorer.score(sample("grandchild", pid_file=str(pid_file))).status == "timeout"
    assert eventually(lambda: not is_running(int(pid_file.read_text())))


def test_the_scorer_dies_with_its_parent_even_when_it_holds_the_interpreter_lock(file: str) -> None:
    program = f"""
import psutil
from verl_like.reward.sandbox import ScorerProcess
scorer = ScorerProcess({file + ":score"!r}, {{}}, 1000)
print(*[child.pid for child in psutil.Process().children()], flush=True)
scorer.score({sample("power")!r})
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.3)  # let the power begin
        assert all(is_running(pid) for pid in pids)
        parent.kill()
    assert eventually(lambda: not any(is_running(pid) for pid in pids))


def test_the_child_is_light_and_quick(file: str) -> None:
    heavy = "import sys, verl_like.reward.child; print([m for m in ('torch', 'numpy', 'ray', 'asyncio') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    samples = [sample("42")] * 1000
    with ScorerProcess(f"{file}:score", {}, timeout_s=5) as scorer:
        list(scorer.score_many(samples[:100]))
        started = time.perf_counter()
        assert all(outcome.status == "ok" for outcome in scorer.score_many(samples))
        assert (time.perf_counter() - started) / len(samples) < 3e-4
