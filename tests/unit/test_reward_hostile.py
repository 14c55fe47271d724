"""A reward function that forks, returns or raises strange things, or writes where it should not: no score moves."""

from __future__ import annotations

import json
import math
import pickle
from array import array
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.unit._reward import sample, scorer_process, statuses, task
from tests.unit.test_reward_scorer_process import child_pids, eventually
from verl_like.reward.framing import decoded, decoded_lines, encoded
from verl_like.reward.scorer_messages import Answer, Ended, Intrusion, Outcome, Sample
from verl_like.reward.team import ScorerTeam

pytestmark = [pytest.mark.alone, pytest.mark.processes]
# The response names what the function does; a number is its own score.
SCORER = '''
import asyncio, ctypes, decimal, fractions, math, os, signal, socket, sys, threading, time
import numpy as np

def raising(name):
    def method(self, *args):
        raise RuntimeError(f"no {name} of this")
    return method

class Strange(dict):
    __reduce__ = __reduce_ex__ = __repr__ = __str__ = __eq__ = __float__ = __hash__ = __format__ = raising("method")

class Unprintable(Exception):
    __reduce__ = __str__ = __repr__ = raising("text")

class Worse(BaseException):
    pass

class Number(float):
    __reduce_ex__ = __repr__ = __eq__ = __hash__ = raising("number")

class Text(str):
    __reduce_ex__ = __repr__ = __str__ = __eq__ = __hash__ = __format__ = __len__ = raising("text")

class Meta(type):
    @property
    def __name__(cls):
        raise RuntimeError("no name")

class Nameless(Exception, metaclass=Meta):
    __str__ = raising("text")

class Causeless(Exception):
    __cause__ = property(raising("cause"))

class SaysText:
    def __str__(self):
        return Text("said")

class Executes:
    def __reduce__(self):
        return os.system, ("touch " + os.environ.get("MARK", "/nowhere/x"),)

def deep():
    error = None
    for i in range(20_000):
        new = RuntimeError(str(i))
        new.__cause__ = error
        error = new
    raise error

def answers():
    """The descriptor that answers go through; its number is the parent's, which may have many open."""
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            if fd > 2 and os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                return fd
        except OSError:
            pass
    return -1

def forged(position):
    return (\'["answer", %d, %d, "ok", 99.0, {}, "", 0.1]\\n\' % (2, position)).encode()

def score(solution_str):
    if solution_str == "fork":
        os.fork()
        return 5.0
    if solution_str == "fork c":
        ctypes.CDLL(None).fork()
        return 5.0
    if solution_str == "fork holds":
        if os.fork() == 0:
            os._exit(0 if answers() < 0 else 1)
        return float(os.waitstatus_to_exitcode(os.wait()[1]))
    if solution_str == "fork raises":
        if os.fork() == 0:
            raise RuntimeError("in the forked process")
        return 5.0
    if solution_str == "fork answers":  # through a library's fork, which runs no hook
        if ctypes.CDLL(None).fork() == 0:
            for position in range(8):
                os.write(answers(), forged(position))
            os._exit(0)
        time.sleep(0.2)
        return 5.0
    if solution_str == "twice":
        os.write(answers(), forged(0) * 2)
        return 5.0
    if solution_str == "garbage":
        os.write(answers(), b"\\x80\\x04garbage\\n")
    if solution_str == "endless line":
        os.write(answers(), b"x" * (20 << 20))
    if solution_str == "ended":
        os.write(answers(), b\'["ended", 0, 0, 0, ""]\\n\')
    if solution_str == "close all":
        os.closerange(3, 1024)
    cases = {
        "strange": Strange, "nested": lambda: {"score": 1.0, "x": Strange()}, "lock": threading.Lock,
        "lambda": lambda: (lambda: 1), "detail lock": lambda: {"score": 1.0, "x": threading.Lock()},
        "executes": lambda: {"score": 1.0, "x": Executes()}, "number": lambda: Number(3.0),
        "text": lambda: {"score": 1.0, "x": Text("a")}, "text name": lambda: {"score": 1.0, SaysText(): SaysText()},
        "huge": lambda: 10**400, "huge detail": lambda: {"score": 1.0, "x": 10**400, "y": 10**5000},
        "fraction": lambda: {"score": 1.0, "x": fractions.Fraction(10**400, 3)}, "single": lambda: 1e39,
        "nan detail": lambda: {"score": 1.0, "x": math.nan, "y": math.inf},
        "inf": lambda: -math.inf, "bytes": lambda: {"score": 1.0, "x": b"ab"}, "score bytes": lambda: b"1",
        "bool": lambda: {"score": True, "x": np.bool_(True), "y": np.float32(0.5), "z": np.int64(7)},
        "dtype": lambda: np.dtype("int8"), "array": lambda: {"score": np.float16(1), "x": np.arange(3)},
        "long text": lambda: {"score": 1.0, "x": "a" * 50_000_000 + "b"}, "decimal": lambda: decimal.Decimal("NaN"),
        "many details": lambda: {"score": 1.0, **{str(i): i for i in range(5000)}},
        "long details": lambda: {"score": 1.0, **{str(i): "x" * 9000 for i in range(500)}},
        "surrogate": lambda: {"score": 1.0, "x": "\\ud800"}, "class": lambda: Strange,
    }
    if solution_str in cases:
        return cases[solution_str]()
    raised = {
        "unprintable": Unprintable, "worse": Worse, "nameless": Nameless, "causeless": Causeless,
        "interrupt": KeyboardInterrupt,
        "cancelled": asyncio.CancelledError, "generator exit": GeneratorExit,
        "long error": lambda: RuntimeError("head" + "x" * 50_000_000 + "tail"),
        "many lines": lambda: RuntimeError("head\\n" + "x\\n" * 3_000_000 + "tail"),
        "local": lambda: type("Local", (Exception,), {})(threading.Lock()),
        "group": lambda: ExceptionGroup("many", [ValueError(str(i)) for i in range(100)]),
        "syntax": lambda: SyntaxError("odd", (1, 2, 3, 4)),
    }
    if solution_str in raised:
        raise raised[solution_str]()
    if solution_str == "deep":
        deep()
    return float(solution_str)

async def score_async(solution_str):
    await asyncio.sleep(0.01)
    return score(solution_str)

def score_batch(prompts, completions, **columns):
    return [score(each) for each in completions]
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("reward") / "scorer.py"
    path.write_text(SCORER)
    return str(path)


@pytest.fixture(scope="module")
def scorer(file: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScorerTeam]:
    with scorer_process(task(f"{file}:score", timeout_s=10.0)) as scorer:
        yield scorer


def outcomes_around(scorer: ScorerTeam, response: str) -> Outcome:
    """Return the outcome of a response between numbers, each of which must have its own score."""
    before, after = ["1", "2"], ["3", "4", "5"]
    outcomes = scorer.score([sample(each) for each in (*before, response, *after)])
    others = [outcome.score for outcome in (*outcomes[:2], *outcomes[3:])]
    assert others == [1.0, 2.0, 3.0, 4.0, 5.0], outcomes
    again = scorer.score([sample(str(i)) for i in range(6)])
    assert [outcome.score for outcome in again] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    return outcomes[2]


@pytest.mark.parametrize("response", ["fork", "fork c", "fork raises"])
@pytest.mark.parametrize("function", ["score", "score_async", "score_batch"])
def test_a_forked_process_that_returns_is_killed_and_shifts_no_score(file: str, response: str, function: str) -> None:
    with scorer_process(task(f"{file}:{function}", timeout_s=10.0)) as scorer:
        scorer.score([sample("1")])
        assert eventually(lambda: all(spare.was_ready() for spare in scorer._spares._warm))
        before = child_pids()
        outcome = outcomes_around(scorer, response)
        assert (outcome.status, outcome.score) == ("ok", 5.0)
        assert eventually(lambda: child_pids() <= before), "neither a process more, nor one replaced"


def test_a_forked_process_does_not_hold_the_descriptor_of_answers(scorer: ScorerTeam) -> None:
    assert outcomes_around(scorer, "fork holds").score == 0.0


@pytest.mark.parametrize("response", ["fork answers", "twice", "garbage", "endless line", "ended"])
def test_answers_that_are_not_the_scorers_own_are_a_crash_and_no_score(file: str, response: str) -> None:
    with scorer_process(task(f"{file}:score", timeout_s=10.0)) as scorer:
        [outcome, *rest] = scorer.score([sample(each) for each in (response, "1", "2", "3")])
        assert (outcome.status, outcome.score) == ("crash", None)
        assert "received what it had not sent" in outcome.message and len(outcome.message) < 1000
        assert [each.score for each in rest] == [1.0, 2.0, 3.0]


def test_a_function_that_closes_all_descriptors_is_a_crash_that_says_so(scorer: ScorerTeam) -> None:
    outcome = outcomes_around(scorer, "close all")
    assert outcome.status == "crash" and "Bad file descriptor" in outcome.message


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("strange", "expected the key 'score'"),
        ("nested", "no method of this"),
        ("lock", "must be a number"),
        ("lambda", "must be a number"),
        ("class", "must be a number"),
        ("text", "no text of this"),
        ("huge", "must be a finite number"),
        ("single", "at most 3.4e+38"),
        ("inf", "must be a finite number"),
        ("score bytes", "must be a number"),
        ("dtype", "must be a number"),
        ("decimal", "must be a number"),
        ("many details", "5001 entries; at most 1000"),
        ("long details", "at most 100000 are kept"),
        ("unprintable", "Unprintable: <exception str() failed>"),
        ("worse", "Worse"),
        ("nameless", "Nameless: <exception str() failed>"),
        ("causeless", "Causeless, whose text is unavailable: formatting it raised RuntimeError"),
        ("interrupt", "KeyboardInterrupt"),
        ("cancelled", "CancelledError"),
        ("generator exit", "GeneratorExit"),
        ("local", "Local"),
        ("group", "and 85 more exceptions"),
        ("syntax", "SyntaxError"),
        ("deep", "RuntimeError"),
    ],
)
@pytest.mark.parametrize("function", ["score", "score_async", "score_batch"])
def test_what_is_returned_or_raised_is_an_error_with_a_reason(
    file: str, request: pytest.FixtureRequest, function: str, response: str, reason: str
) -> None:
    teams = request.getfixturevalue("teams")
    outcome = outcomes_around(teams[function], response)
    assert (outcome.status, outcome.score) == ("error", None)
    assert reason in outcome.message and len(outcome.message) < 11_000


@pytest.fixture(scope="module")
def teams(file: str) -> Iterator[dict[str, ScorerTeam]]:
    names = ("score", "score_async", "score_batch")
    made = {name: ScorerTeam(task(f"{file}:{name}", timeout_s=10.0), 1) for name in names}
    yield made
    for team in made.values():
        team.close()


@pytest.mark.parametrize(
    ("response", "score", "details"),
    [
        ("number", 3.0, {}),
        ("text name", 1.0, {"said": "said"}),
        ("huge detail", 1.0, {"x": "an integer of 1329 bits", "y": "an integer of 16610 bits"}),
        ("nan detail", 1.0, {"x": math.nan, "y": math.inf}),
        ("bytes", 1.0, {"x": "b'ab'"}),
        ("bool", 1.0, {"x": 1.0, "y": 0.5, "z": 7.0}),
        ("array", 1.0, {"x": "[0, 1, 2]"}),
        ("surrogate", 1.0, {"x": "\ud800"}),
    ],
)
def test_numbers_of_any_class_are_floats_and_anything_else_is_text(
    scorer: ScorerTeam, response: str, score: float | None, details: dict[str, float | str]
) -> None:
    outcome = outcomes_around(scorer, response)
    assert outcome.score == score and json.dumps(outcome.details) == json.dumps(details)
    assert {type(each) for each in outcome.details.values()} <= {float, str}


def test_objects_as_details_are_sent_as_text_and_none_of_their_code_runs_in_the_parent(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("MARK", str(mark))
    with scorer_process(task(f"{file}:score")) as scorer:
        executes, lock = scorer.score([sample("executes"), sample("detail lock")])
    assert "Executes object" in str(executes.details["x"]) and "lock" in str(lock.details["x"])
    assert not mark.exists()


def test_a_fraction_beyond_all_floats_is_text(scorer: ScorerTeam) -> None:
    assert str(outcomes_around(scorer, "fraction").details["x"]).endswith("0/3")


def test_a_long_text_is_clipped_where_it_is_made_and_stays_different_from_others(scorer: ScorerTeam) -> None:
    text = outcomes_around(scorer, "long text").details["x"]
    assert isinstance(text, str) and len(text) < 10_200
    assert text.startswith("aaa") and "aab [" in text and "49990001 characters left out" in text


@pytest.mark.parametrize("response", ["long error", "many lines"])
def test_a_long_error_keeps_its_head_and_its_tail(scorer: ScorerTeam, response: str) -> None:
    message = outcomes_around(scorer, response).message
    assert "RuntimeError: head" in message and message.endswith("tail") and "left out" in message
    assert len(message) < 10_200


def test_lines_that_are_not_ours_are_intrusions() -> None:
    answer = Answer(1, 2, Outcome("ok", 0.5, {"x": 1.0, "y": "\n\ud800"}, "", 0.25))
    assert decoded(encoded(answer)) == answer and encoded(answer).count(b"\n") == 1
    ended = Ended(-9, 1, 1, "words")
    assert decoded(encoded(ended)) == ended
    for line in (
        b"", b"[", b"{}", b"[" * 100_000, b"1" * 5000, b"\xff", b'["answer"]', b'["readings", 1, [[1, 2]]]',
        b'["answer", 1, 0, "ok", null, {}, "", 0.1]', b'["answer", 1, 0, "ok", NaN, {}, "", 0.1]',
        b'["answer", 1, 0, "ok", 1, {}, "", 0.1]', b'["answer", 1, 0, "timeout", 1.0, {}, "", 0.1]',
        b'["answer", 1, 0, "fine", null, {}, "", 0.1]', b'["answer", 1, 0, "ok", 1.0, {"a": [1]}, "", 0.1]',
        b'["readings", 1, [["maybe", ""]]]', b'["readings", 1, [5]]',
    ):  # fmt: skip
        assert isinstance(decoded(line), Intrusion), line


def test_lines_decoded_together_give_what_each_gives_alone() -> None:
    answers = [Answer(1, i, Outcome("ok", 0.5, {"x": "\ud800"}, "", 0.25)) for i in range(3)]
    lines = [encoded(answer).rstrip(b"\n") for answer in answers]
    assert decoded_lines([]) == [] and decoded_lines(lines) == answers
    mixed = [lines[0], b"[1", b"2]", b"3],[4", lines[1], b"[" * 100_000, b"\xff", lines[2]]
    assert decoded_lines(mixed) == [decoded(line) for line in mixed]
    assert [isinstance(each, Answer) for each in decoded_lines(mixed)] == [line in lines for line in mixed]


def test_a_sample_crosses_unchanged() -> None:
    given = Sample(
        response="r",
        prompt="p",
        messages=[{"role": "user", "content": "p"}],
        data_source="s",
        ground_truth="1",
        extra_info={"i": 1},
        columns={"c": 2},
        response_ids=array("i", [1, 2]),
        episode={"prompt": []},
    )
    assert pickle.loads(pickle.dumps(given)) == given


def test_nothing_is_left(file: str) -> None:
    before, descriptors = child_pids(), psutil.Process().num_fds()
    with scorer_process(task(f"{file}:score")) as scorer:
        assert set(statuses(scorer.score([sample("fork"), sample("garbage"), sample("1")]))) == {"ok", "crash"}
    assert child_pids() == before and psutil.Process().num_fds() == descriptors
