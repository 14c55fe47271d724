"""Every ground truth is read before a run starts, in scorer processes; those that cannot be graded are reported."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from recipes.arithmetic.model import character_tokenizer
from tests.unit._reward import sample, task
from verl_like.config.schema import Config, DataConfig, RewardConfig
from verl_like.context import replaced
from verl_like.data.files import read_rows
from verl_like.data.prompts import PromptDataset
from verl_like.reward.functions import Scoring
from verl_like.reward.ground_truth import ground_truth_reader
from verl_like.reward.ground_truth_check import MAX_PIECE_BYTES, distinct, pieces
from verl_like.reward.scorer_messages import RowGroundTruth
from verl_like.reward.signatures import bind
from verl_like.reward.trial import try_reward
from verl_like.telemetry.startup import Startup
from verl_like.training import tasks

pytestmark = pytest.mark.processes

# The ground truth selects what reading it does.
SOURCE = """
import os, time
from pathlib import Path

def score(solution_str, bonus=0.0):
    return bonus

async def score_async(solution_str):
    return 0.0

def score_batch(solution_strs):
    return [0.0] * len(solution_strs)

def mistake(ground_truth):
    return {}[ground_truth]

def read_truth(ground_truth, **kwargs):
    if ground_truth == "sleep":
        time.sleep(1000)
    if ground_truth == "loop":
        while True:
            pass
    if ground_truth == "exit":
        os._exit(3)
    if ground_truth == "kill":
        os.kill(os.getpid(), 9)
    if ground_truth == "sys.exit":
        raise SystemExit("no more")
    if ground_truth == "memory":
        bytearray(8 << 30)
    if ground_truth == "mistake":
        return mistake(ground_truth)
    if ground_truth == "none":
        return None
    if ground_truth == "kwargs":
        return str(kwargs)
    if str(ground_truth).startswith("kill once "):
        if not Path(ground_truth[10:]).exists():
            Path(ground_truth[10:]).touch()
            os.kill(os.getpid(), 9)
    if str(ground_truth).startswith("text"):
        return "its brackets are not balanced"
    if str(ground_truth).startswith("bad"):
        raise ValueError(f"found {ground_truth}; expected a number. Write one.")
    return ""
"""
REMEDY = (
    "Correct these rows in the data files, or write the files without them; NAME:N is row N of the file NAME, counted "
    "from 0. reward.try_first=false starts anyway: every response to such a row then fails, and reward.on_failure sets "
    "its score."
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def rows(ground_truths: Sequence[Any], source: str = "s") -> list[tuple[str, RowGroundTruth]]:
    return [(f"train.parquet:{i}", RowGroundTruth(source, truth)) for i, truth in enumerate(ground_truths)]


def config(file: Path, name: str = "score", **options: Any) -> RewardConfig:
    return RewardConfig(**{"function": f"{file}:{name}", **options})


def refusal(settings: RewardConfig, ground_truths: Sequence[tuple[str, RowGroundTruth]]) -> str:
    with pytest.raises(ValueError) as refused:
        try_reward(settings, {}, ground_truths)
    return str(refused.value)


def reasons(message: str) -> dict[str, str]:
    """Return the reasons by the location of the row."""
    lines = [line.strip() for line in message.splitlines() if line.startswith("  ") and "(data_source" in line]
    return {line.partition(" ")[0]: line.partition(": ")[2] for line in lines}


@pytest.mark.parametrize("name", ["score", "score_async", "score_batch"])
def test_ground_truths_that_cannot_be_graded_are_refused_together(file: Path, name: str) -> None:
    ground_truths = ["1", "bad 1", "2", "bad 1", "bad 2"]
    assert refusal(config(file, name), rows(ground_truths)) == (
        "2 of 4 ground truths cannot be graded.\n"
        "  train.parquet:1 (data_source 's') has 'bad 1': found bad 1; expected a number. Write one.\n"
        "  train.parquet:4 (data_source 's') has 'bad 2': found bad 2; expected a number. Write one.\n"
        f"All 3 rows: train.parquet:1, train.parquet:3, train.parquet:4.\n{REMEDY}"
    )


def test_of_many_the_first_three_are_reported_and_the_locations_of_fifty_rows(file: Path) -> None:
    message = refusal(config(file), rows(["1", *(f"bad {i}" * 100 for i in range(70))]))
    head, *shown, places, remedy = message.splitlines()
    assert head == "70 of 71 ground truths cannot be graded. The first 3:" and remedy == REMEDY
    assert [line.split()[0] for line in shown] == ["train.parquet:1", "train.parquet:2", "train.parquet:3"]
    assert all(len(line) < 1000 for line in shown), "long ground truths and reasons are truncated"
    first_fifty = ", ".join(f"train.parquet:{i}" for i in range(1, 51))
    assert places == f"All 70 rows: {first_fifty} and 20 more."


def test_ground_truths_compared_as_text_cause_a_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        try_reward(config(file), {}, rows(["1", "text a", "2", "text b"]))
    assert [record.getMessage() for record in caplog.records] == [
        "2 of 4 ground truths are compared as text: a response is correct if its normalised text is the same.\n"
        "  train.parquet:1 (data_source 's') has 'text a': its brackets are not balanced\n"
        "  train.parquet:3 (data_source 's') has 'text b': its brackets are not balanced"
    ]


def test_ground_truths_compared_by_value_cause_no_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        try_reward(config(file), {}, rows(["1", 2, None, ["3"]]))
    assert not caplog.records


def test_a_ground_truth_that_hangs_or_ends_the_process_is_unreadable_and_the_others_are_read(file: Path) -> None:
    ground_truths = ["1", "2", "loop", "3", "bad", "exit", "4", "sleep"]
    started = time.monotonic()
    found = refusal(config(file, timeout_s=0.5), rows(ground_truths))
    assert found.startswith("4 of 8 ground truths cannot be graded. The first 3:")
    killed = "not read within reward.timeout_s=0.5; the scorer process was killed"
    assert reasons(found) == {
        "train.parquet:2": killed,
        "train.parquet:4": "found bad; expected a number. Write one.",
        "train.parquet:5": "the scorer process exited with code 3",
    }
    assert "All 4 rows: train.parquet:2, train.parquet:4, train.parquet:5, train.parquet:7." in found
    assert time.monotonic() - started < 60, "two deadlines of half a second each, twice, and new processes"


def test_a_first_ground_truth_that_hangs_takes_its_deadline_and_is_reported_like_the_others(file: Path) -> None:
    found = refusal(config(file, timeout_s=0.5), rows(["sleep", "1"]))
    assert reasons(found) == {"train.parquet:0": "not read within reward.timeout_s=0.5; the scorer process was killed"}


def test_a_process_killed_by_another_is_not_attributed_to_a_ground_truth(file: Path, tmp_path: Path) -> None:
    ground_truths = ["1", *(f"kill once {tmp_path / str(i)}" for i in range(2)), "2"]
    try_reward(config(file), {}, rows(ground_truths))
    assert (tmp_path / "0").exists() and (tmp_path / "1").exists(), "both did kill it"


def test_a_ground_truth_that_kills_the_process_each_time_is_unreadable(file: Path) -> None:
    killed = "the scorer process was killed by SIGKILL (out of memory?)"
    assert reasons(refusal(config(file), rows(["1", "2", "kill", "3"]))) == {"train.parquet:2": killed}


def test_a_mistake_in_reading_ground_truths_shows_its_authors_frames(file: Path) -> None:
    message = refusal(config(file), rows(["1", "mistake"]))
    assert f'File "{file}", line 15, in mistake' in message and "KeyError: 'mistake'" in message
    assert "reward/ground_truth.py" not in message


@pytest.mark.parametrize(
    ("truth", "reason"),
    [
        ("none", "read_truth returned None (NoneType); expected '' if the ground truth can be compared by value,"),
        ("memory", "reading it takes more than reward.max_memory_gib"),
    ],
)
def test_a_text_without_an_answer_makes_the_ground_truth_unreadable(file: Path, truth: str, reason: str) -> None:
    message = refusal(config(file, max_memory_gib=1.0), rows(["1", truth]))
    assert reasons(message)["train.parquet:1"].startswith(reason)


def test_an_exit_in_reading_ground_truths_is_reported_and_ends_nothing(file: Path) -> None:
    message = refusal(config(file), rows(["sys.exit", "bad"]))
    assert message.startswith("2 of 2 ground truths cannot be graded.") and "SystemExit: no more" in message


def test_try_first_false_reads_no_ground_truth(file: Path) -> None:
    try_reward(config(file, try_first=False), {}, rows(["bad 1"] * 3))


def test_a_sample_whose_ground_truth_cannot_be_read_is_reported_with_the_other_ground_truths(file: Path) -> None:
    ground_truths = rows(["bad 1", "2", "bad 3"])
    broken = RewardConfig(function=f"{file}:mistake")  # of no known form
    with pytest.raises(ValueError, match=r"^2 of 3 ground truths cannot be graded"):
        try_reward(config(file), {"train.parquet:0": sample("bad 1", "bad 1")}, ground_truths)
    with pytest.raises(ValueError, match="which is none of the known forms"):
        try_reward(broken, {"train.parquet:0": sample("bad 1", "bad 1")}, ground_truths)


def test_a_sample_that_fails_is_reported_before_all_ground_truths_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE.replace("return bonus", "return None"))
    with pytest.raises(ValueError, match=r"was tried on prompt train\.parquet:0"):
        try_reward(config(path), {"train.parquet:0": sample("1", "1")}, rows(["1", "bad 1"]))


def test_a_function_without_a_reader_of_ground_truths_is_not_called(file: Path) -> None:
    (file.parent / "other.py").write_text("def score(solution_str):\n    return 0.0\n")
    reported: list[tuple[int, int]] = []
    try_reward(
        config(file.parent / "other.py"), {}, rows(range(5000)), progress=lambda *counts: reported.append(counts)
    )
    assert reported == []


def test_a_data_source_without_a_function_is_reported_by_the_trial() -> None:
    samples = {"train.parquet:0": sample("1", "1", data_source="riddles")}
    with pytest.raises(ValueError, match="no reward function is known for data_source 'riddles'"):
        try_reward(RewardConfig(), samples, rows(["1", "2"], "riddles"))


def test_each_of_several_functions_that_has_a_reader_is_asked(file: Path) -> None:
    functions = {
        "mine": {"function": f"{file}:score"},
        "form": {"function": "format"},
        "same": {"function": "exact_match"},
    }
    message = refusal(RewardConfig(functions=functions), rows(["1", 2, "bad 3"]))
    assert message.startswith("2 of 3 ground truths cannot be graded.")
    assert reasons(message) == {
        "train.parquet:1": "reward.functions.same: ground_truth is int 2; exact_match compares strings. Store it as "
        "text.",
        "train.parquet:2": "reward.functions.mine: found bad 3; expected a number. Write one.",
    }


def test_each_data_source_is_asked_by_its_own_grader() -> None:
    ground_truths = [*rows(["A", "x"], "choice"), *rows(["A", "x"], "exact_match"), *rows([1], "format")]
    message = refusal(RewardConfig(), ground_truths)
    assert message.startswith(
        "1 of 4 ground truths cannot be graded.\n"
        "  train.parquet:1 (data_source 'choice') has 'x': ground_truth is 'x'; expected one of the letters ABCD."
    )


def test_a_reader_gets_those_of_the_functions_arguments_that_it_names() -> None:
    letters = {"function": "choice", "function_kwargs": {"letters": "XY"}}
    try_reward(RewardConfig(**letters), {}, rows(["X", "Y"]))
    assert "expected one of the letters XY" in refusal(RewardConfig(**letters), rows(["X", "A"]))


def test_a_reader_that_takes_any_argument_gets_all(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        try_reward(config(file, function_kwargs={"bonus": 0.5}), {}, rows(["kwargs"]))
    assert "has 'kwargs': {'bonus': 0.5}" in caplog.text


@pytest.mark.alone
@pytest.mark.parametrize("num_workers", [1, 2])
def test_twenty_thousand_ground_truths_are_read_in_seconds_and_counted(file: Path, num_workers: int) -> None:
    reported: list[tuple[int, int]] = []
    started = time.monotonic()
    ground_truths = rows([f"truth {i}" for i in range(20_000)] + ["bad", *("truth 7" for _ in range(100))])
    with pytest.raises(ValueError, match=r"^1 of 20001 ground truths cannot be graded\.\n  train\.parquet:20000 "):
        try_reward(
            config(file, num_workers=num_workers), {}, ground_truths, progress=lambda *counts: reported.append(counts)
        )
    assert time.monotonic() - started < 20
    done = [num_read for num_read, _ in reported]
    assert done[0] == 0 and done[-1] == 20_000 and done == sorted(done) and len(done) > 50
    assert {num_ground_truths for _, num_ground_truths in reported} == {20_000}, (
        "the first has been read with the trial"
    )


def test_readings_travel_many_at_once(file: Path) -> None:
    scoring = Scoring(task(f"{file}:score").functions, max_concurrency=1, timeout_s=5.0)
    started = time.perf_counter()
    lists = list(scoring.ground_truth_readings(RowGroundTruth("s", str(i)) for i in range(20_000)))
    assert len(lists) <= (time.perf_counter() - started) / 0.1 + 1
    assert sum(map(len, lists)) == 20_000


def test_equal_ground_truths_are_one_and_others_are_not() -> None:
    ground_truths = ["1", 1, True, 1.0, ["1"], ["1"], {"a": [1]}, {"a": [1]}, "1"]
    found = distinct([*rows(ground_truths), ("val.parquet:0", RowGroundTruth("t", "1"))])
    assert [(each.row.data_source, each.row.ground_truth) for each in found] == [
        ("s", "1"),
        ("s", 1),
        ("s", True),
        ("s", 1.0),
        ("s", ["1"]),
        ("s", {"a": [1]}),
        ("t", "1"),
    ]
    assert found[0].uids == ["train.parquet:0", "train.parquet:8"] and found[-1].uids == ["val.parquet:0"]
    assert [each.index for each in found] == list(range(7))


def test_long_ground_truths_travel_in_small_pieces_and_short_ones_in_hundreds() -> None:
    short = distinct(rows([str(i) for i in range(5000)]))
    assert {len(piece) for piece in pieces(short, num_processes=2)} == {256, 5000 % 256}
    assert max(len(piece) for piece in pieces(short[:80], num_processes=4)) == 5, "each process gets four"
    long = distinct(rows([str(i) * (MAX_PIECE_BYTES // 3) for i in range(9)] + ["x" * 2 * MAX_PIECE_BYTES, "y"]))
    cut = pieces(long, num_processes=1)
    assert [each for piece in cut for each in piece] == long
    assert all(len(piece) == 1 or sum(each.num_bytes for each in piece) <= MAX_PIECE_BYTES for piece in cut)


def read_truth(ground_truth: str) -> str:
    return f"read {ground_truth}"


def plain(solution_str: str, bonus: float = 0.0) -> float:
    return bonus


@functools.wraps(plain)
def wrapper(*args: Any, **kwargs: Any) -> float:
    return plain(*args, **kwargs)


class Scorer:
    def __call__(self, solution_str: str) -> float:
        return 0.0

    def method(self, solution_str: str) -> float:
        return 0.0


@pytest.mark.parametrize(
    "function",
    [
        plain,
        wrapper,
        functools.partial(plain, bonus=1.0),
        functools.partial(functools.partial(wrapper), bonus=1.0),
        functools.lru_cache(plain),
        Scorer(),
        Scorer().method,
    ],
    ids=["function", "wrapped", "partial", "partial of wrapped", "cached", "object", "method"],
)
def test_the_reader_is_found_next_to_the_called_program(function: Callable[..., float]) -> None:
    reader = ground_truth_reader(bind(function, {}, name="x"))
    assert reader is not None and reader("1") == "read 1"


@pytest.mark.parametrize("function", [print, functools.partial(print), pow, type("Other", (), {})])
def test_a_function_without_its_own_module_has_no_reader(function: Any) -> None:
    bound = bind(plain, {}, name="x")
    assert ground_truth_reader(type(bound)(function, bound.form, {}, None)) is None


def test_a_run_reads_the_ground_truths_of_its_prompts_and_says_how_far_it_is() -> None:
    printed: list[str] = []

    class Told(Startup):
        def now(self, what: str) -> None:
            printed.append(what)

        def so_far(self, what: str) -> None:
            printed.append(f"... {what}")

    rows = {"train.parquet": "ABCA", "val.parquet": "7"}
    found = read_rows(
        list(rows), lambda file: [{"prompt": "6*7=", "answer": a, "data_source": "choice"} for a in rows[file]]
    )
    prompts = PromptDataset(found, DataConfig(apply_chat_template=False), character_tokenizer())
    with (
        replaced(Startup, Told()),
        pytest.raises(
            ValueError, match=r"^1 of 4 ground truths cannot be graded\.\n  val\.parquet:0 \(data_source 'choice'\)"
        ),
    ):
        tasks.check_reward(Config(), prompts)
    assert printed == [
        "trying the reward functions",
        "reading 3 ground truths",
        *(f"... reading 3 ground truths: {n} done" for n in (1, 2, 3)),
    ]
