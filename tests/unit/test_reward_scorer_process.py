"""The scorer process: whatever a reward function does, each sample gets one outcome and no failure becomes a score."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.unit._reward import sample, scorer_process, statuses, task
from verl_like.reward.team import ScorerTeam

pytestmark = [pytest.mark.alone, pytest.mark.processes]
# The response chooses what the function does.
SCORER = """
import asyncio, os, subprocess, sys, time

calls = 0
batches = []

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
    if solution_str == "killed":
        os.kill(os.getpid(), 9)
    if solution_str == "memory":
        return float(len(bytearray(8 << 30)))
    if solution_str == "raise":
        raise RuntimeError("cannot grade this")
    if solution_str == "nan":
        return float("nan")
    if solution_str == "none":
        return None
    if solution_str == "calls":
        return calls
    if solution_str == "pid":
        return os.getpid()
    if solution_str == "mark":
        with open(extra_info["file"], "a") as file:
            file.write("x")
        time.sleep(0.4)
    if solution_str == "grandchild":
        child = subprocess.Popen(["sleep", "1000"])
        open(extra_info["pid_file"], "w").write(str(child.pid))
        time.sleep(1000)
    if solution_str == "print":
        print("x" * 100_000)
        sys.stdout.flush()
    return {"score": bonus + float(solution_str == ground_truth), "pred": solution_str}

def score_batch(data_sources, solution_strs, ground_truths, extra_infos):
    batches.append(len(solution_strs))
    if solution_strs[0] == "batches":
        return [len(batches)]
    return [score(*each)["score"] for each in zip(data_sources, solution_strs, ground_truths, extra_infos)]

def slow_batch(data_sources, solution_strs, ground_truths, extra_infos):
    time.sleep(0.05 * len(solution_strs))
    return [1.0] * len(solution_strs)

active = most_active = 0

async def score_async(data_source, solution_str, ground_truth, extra_info):
    global active, most_active
    active += 1
    most_active = max(active, most_active)
    try:
        await asyncio.sleep(1000 if solution_str == "sleep" else 0.2 if solution_str == "wait" else 0)
    finally:
        active -= 1
    return most_active if solution_str == "most_active" else score(data_source, solution_str, ground_truth, extra_info)["score"]
"""  # noqa: E501


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("reward") / "scorer.py"
    path.write_text(SCORER)
    return str(path)


@pytest.fixture
def scorer(file: str) -> Iterator[ScorerTeam]:
    with scorer_process(task(f"{file}:score", timeout_s=1.0)) as scorer:
        yield scorer


def eventually(claim: Callable[[], bool], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.02)
    return claim()


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def child_pids() -> set[int]:
    """Scorer processes of this one; it may have other children, a Ray cluster among them."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "verl_like.reward.scorer_main" in child.cmdline():
                found.add(child.pid)
    return found


def test_a_score_comes_back_with_its_details(scorer: ScorerTeam) -> None:
    [outcome] = scorer.score([sample("42")])
    assert (outcome.status, outcome.score, outcome.details) == ("ok", 1.0, {"pred": "42"})
    assert 0 <= outcome.seconds < 1.0


def test_function_kwargs_reach_the_function(file: str) -> None:
    with scorer_process(task(f"{file}:score", bonus=2.0)) as scorer:
        assert scorer.score([sample("42")])[0].score == 3.0


@pytest.mark.parametrize("response", ["loop", "power", "sleep"])
def test_past_its_deadline_a_sample_is_a_timeout_and_the_next_one_is_scored(scorer: ScorerTeam, response: str) -> None:
    started = time.monotonic()
    outcome, after = scorer.score([sample(response), sample("42")])
    assert (outcome.status, outcome.score) == ("timeout", None) and "reward.timeout_s=1" in outcome.message
    assert after.score == 1.0
    assert time.monotonic() - started < 1.0 + 1.0, "the spare must take over within a second"


@pytest.mark.parametrize(
    ("response", "message"),
    [("exit", "exited with code 3"), ("segfault", "was killed by SIGSEGV"), ("killed", "was killed by SIGKILL")],
)
def test_a_process_that_dies_is_a_crash_and_the_next_sample_is_scored(
    scorer: ScorerTeam, response: str, message: str
) -> None:
    outcome, after = scorer.score([sample(response), sample("42")])
    assert (outcome.status, outcome.score) == ("crash", None) and message in outcome.message
    assert after.score == 1.0


def test_a_sample_over_the_memory_limit_fails_and_the_next_one_is_scored(scorer: ScorerTeam) -> None:
    outcome, after = scorer.score([sample("memory"), sample("42")])
    assert (outcome.status, outcome.score) == ("memory", None) and "MemoryError" in outcome.message
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
    scorer: ScorerTeam, response: str, message: str
) -> None:
    outcome, calls = scorer.score([sample(response), sample("calls")])
    assert (outcome.status, outcome.score) == ("error", None) and message in outcome.message
    assert calls.score == 2.0, "an error does not cost the process"


def test_printing_does_not_disturb_the_answers(scorer: ScorerTeam, capfd: pytest.CaptureFixture[str]) -> None:
    outcomes = scorer.score([sample("print", "print"), sample("42")])
    assert [outcome.score for outcome in outcomes] == [1.0, 1.0]


def test_every_sample_of_a_poisoned_batch_gets_its_own_outcome_in_sequence(scorer: ScorerTeam) -> None:
    responses = ["42", "loop", "43", "exit", "exit", *["42"] * 100, "raise", "power", "42"]
    outcomes = scorer.score([sample(response) for response in responses])
    expected = {"loop": "timeout", "power": "timeout", "exit": "crash", "raise": "error"}
    assert statuses(outcomes) == [expected.get(response, "ok") for response in responses]
    assert [o.score for o in outcomes if o.status == "ok"] == [float(r == "42") for r in responses if r not in expected]


def test_a_process_killed_while_idle_costs_no_sample(scorer: ScorerTeam) -> None:
    scorer.score([sample("42")])
    for pid in child_pids():
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not any(is_running(pid) for pid in child_pids()))
    assert statuses(scorer.score([sample("42")])) == ["ok"]


def test_kill_9_in_the_middle_of_a_batch_loses_no_sample_and_answers_none_twice(
    scorer: ScorerTeam, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    [pid] = [int(outcome.score or 0) for outcome in scorer.score([sample("pid")])]
    before = [sample("42"), sample("43")] * 5
    killer = threading.Thread(target=lambda: (eventually(marks.exists), os.kill(pid, signal.SIGKILL)))
    killer.start()
    outcomes = scorer.score([*before, sample("mark", "mark", file=str(marks)), *before, sample("calls")])
    killer.join()
    assert [outcome.score for outcome in outcomes[:-1]] == [*[1.0, 0.0] * 5, 1.0, *[1.0, 0.0] * 5]
    assert marks.read_text() == "xx", "the sample that was under way was begun again"
    assert outcomes[-1].score == 1 + 10 + 1, "the new process scored what was left, and nothing that had been answered"


def test_the_spare_takes_over_within_a_second(scorer: ScorerTeam) -> None:
    started = time.monotonic()
    outcomes = scorer.score([sample("exit"), sample("42")])
    assert statuses(outcomes) == ["crash", "ok"] and time.monotonic() - started < 1.0


def test_in_a_batch_function_each_sample_has_its_own_outcome(file: str) -> None:
    responses = ["42", "loop", "43", "exit", *["42"] * 20, "raise", "memory", "42"]
    with scorer_process(task(f"{file}:score_batch", timeout_s=1.0)) as scorer:
        outcomes = scorer.score([sample(response) for response in responses])
    expected = {"loop": "timeout", "exit": "crash", "raise": "error", "memory": "memory"}
    assert statuses(outcomes) == [expected.get(response, "ok") for response in responses]
    assert [o.score for o in outcomes if o.status == "ok"] == [float(r == "42") for r in responses if r not in expected]


def test_a_sound_batch_is_one_call(file: str) -> None:
    with scorer_process(task(f"{file}:score_batch")) as scorer:
        scorer.score([sample("42")] * 50)
        assert scorer.score([sample("batches")])[0].score == 2.0


def test_a_batch_that_is_too_slow_as_a_whole_is_scored_alone_says_so_and_shrinks(file: str) -> None:
    with scorer_process(task(f"{file}:slow_batch", timeout_s=0.5)) as scorer:
        first = scorer.score([sample("a")] * 16)
        assert statuses(first) == ["ok"] * 16 and "after a batch of 16 had failed (timeout)" in first[0].message
        started = time.monotonic()
        second = scorer.score([sample("a")] * 16)
        assert [outcome.message for outcome in second] == [""] * 16
        assert time.monotonic() - started < 16 * 0.05 + 0.4, "two batches of 8, without a detour"


def test_async_calls_run_side_by_side_up_to_the_limit(file: str) -> None:
    with scorer_process(task(f"{file}:score_async", max_concurrency=8)) as scorer:
        started = time.monotonic()
        outcomes = scorer.score([*[sample("wait", "wait")] * 16, sample("most_active")])
        assert time.monotonic() - started < 1.0, "16 calls of 0.2 s, 8 at once"
    assert [outcome.score for outcome in outcomes] == [*[1.0] * 16, 8.0]


def test_an_async_call_past_its_deadline_is_cancelled_without_effect_on_others(file: str) -> None:
    with scorer_process(task(f"{file}:score_async", timeout_s=0.5)) as scorer:
        assert eventually(lambda: all(spare.was_ready() for spare in scorer._spares._warm))
        before = child_pids()
        outcomes = scorer.score([sample(response) for response in ("42", "sleep", "43", "sleep")])
        assert child_pids() == before, "no process was replaced"
    assert statuses(outcomes) == ["ok", "timeout", "ok", "timeout"]


def test_an_async_function_that_blocks_the_loop_is_killed_and_its_neighbours_are_scored(file: str) -> None:
    with scorer_process(task(f"{file}:score_async", timeout_s=0.5)) as scorer:
        outcomes = scorer.score([sample(response) for response in ("42", "loop", "43", "exit")])
    assert statuses(outcomes) == ["ok", "timeout", "ok", "crash"]
    assert "no score within reward.timeout_s=0.5;" in outcomes[1].message, "the user's number, without our grace"


def test_an_empty_name_chooses_per_row() -> None:
    rows = [
        sample("#### 42", data_source="gsm8k"),
        sample("42", data_source="exact_match"),
        sample("#### 42", data_source="gsm8k/train"),
        sample("42", data_source="unknown"),
    ]
    with scorer_process(task("")) as scorer:
        outcomes = scorer.score(rows)
    assert [outcome.score for outcome in outcomes] == [1.0, 1.0, 1.0, None]
    assert outcomes[3].status == "error" and "known are" in outcomes[3].message


@pytest.mark.parametrize(
    ("function", "kwargs", "message"),
    [
        ("nowhere.py:score", {}, "does not exist"),
        ("{file}:missing", {}, "defines no 'missing'"),
        ("{file}:score", {"bonsu": 1.0}, "takes no bonsu"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_at_the_start(
    file: str, function: str, kwargs: dict[str, float], message: str
) -> None:
    before = child_pids()
    with pytest.raises(ValueError, match=message):
        with scorer_process(task(function.format(file=file), **kwargs)):
            pass
    assert child_pids() == before


def test_a_file_that_kills_the_process_on_import_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import os\nos._exit(9)\n")
    with pytest.raises(RuntimeError, match=r"exited with code 9 before its function was loaded"):
        with scorer_process(task(f"{tmp_path}/bad.py:score")):
            pass


def test_close_leaves_no_process_and_no_descriptor(file: str) -> None:
    processes, descriptors = child_pids(), psutil.Process().num_fds()
    with scorer_process(task(f"{file}:score", timeout_s=0.3)) as scorer:
        scorer.score([sample("loop"), sample("exit"), sample("42")])
    assert child_pids() == processes and psutil.Process().num_fds() == descriptors


def test_a_timeout_also_ends_what_the_function_has_started(scorer: ScorerTeam, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert statuses(scorer.score([sample("grandchild", pid_file=str(pid_file))])) == ["timeout"]
    assert eventually(lambda: not is_running(int(pid_file.read_text())))


def test_the_scorer_dies_with_its_parent_even_when_it_holds_the_interpreter_lock(file: str) -> None:
    program = f"""
import psutil
from tests.unit._reward import sample, scorer_process, task
with scorer_process(task({file + ":score"!r}, timeout_s=1000)) as scorer:
    print(*[child.pid for child in psutil.Process().children()], flush=True)
    scorer.score([sample("power")])
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.3)  # let the power begin
        assert all(is_running(pid) for pid in pids)
        parent.kill()
    assert eventually(lambda: not any(is_running(pid) for pid in pids))


def test_a_spare_that_was_killed_while_it_waited_is_not_handed_out(file: str) -> None:
    with scorer_process(task(f"{file}:score")) as scorer:
        [pid] = [int(outcome.score or 0) for outcome in scorer.score([sample("pid")])]
        assert eventually(lambda: all(spare.was_ready() for spare in scorer._spares._warm))
        for spare in child_pids() - {pid}:
            os.kill(spare, signal.SIGKILL)
        assert statuses(scorer.score([sample("exit"), sample("42")])) == ["crash", "ok"]


def test_a_scorer_process_is_light_and_quick(file: str) -> None:
    heavy = "import sys, verl_like.reward.scorer_main; print([m for m in ('torch', 'numpy', 'ray', 'asyncio') if m in sys.modules])"  # noqa: E501
    assert (
        subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
    samples = [sample("42")] * 1000
    with scorer_process(task(f"{file}:score")) as scorer:
        scorer.score(samples[:100])
        started = time.perf_counter()
        assert set(statuses(scorer.score(samples))) == {"ok"}
        assert (time.perf_counter() - started) / len(samples) < 3e-4
