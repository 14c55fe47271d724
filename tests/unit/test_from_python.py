"""Functions and rows out of a script or a notebook: what every process of a run finds in their place."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_like.checks.paths import missing_files
from verl_like.checks.reward import reward_files_exist
from verl_like.config.compose import as_yaml, compose
from verl_like.config.schema import Config, RewardConfig
from verl_like.config.user_code import FROM_PYTHON, from_file
from verl_like.data.files import read_rows
from verl_like.from_python import stored
from verl_like.scripting import config_of
from verl_like.telemetry.trackers import JsonlTracker, metrics_table

NOTEBOOK = """
import re
from functools import partial

WEIGHT = {weight}

def digits(text):
    return re.findall("[0-9]", text)

def score(solution_str, ground_truth):
    return WEIGHT * len(digits(solution_str))

def closure(bonus):
    return lambda solution_str, ground_truth: bonus + len(digits(solution_str))

class Scorer:
    def __init__(self, bonus):
        self.bonus = bonus

    def __call__(self, solution_str, ground_truth):
        return self.bonus + score(solution_str, ground_truth)

    def method(self, solution_str, ground_truth):
        return self.bonus - score(solution_str, ground_truth)

def with_bonus(bonus, solution_str, ground_truth):
    return bonus + 10

CASES = {{
    "function": score,
    "closure": closure(5),
    "object": Scorer(7),
    "method": Scorer(7).method,
    "partial": partial(with_bonus, 3),
}}
EXPECTED = {{"function": 4, "closure": 7, "object": 11, "method": 3, "partial": 13}}
"""


def session(*, weight: int = 2, cell: str = "ipykernel_1/1.py") -> dict[str, Any]:
    """Return the variables of a notebook after its cell has run."""
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(NOTEBOOK.format(weight=weight), cell, "exec"), variables)
    return variables


def with_function(function: Any, folder: Path) -> str:
    """Return the value that replaces the function in a run's configuration."""
    config = Config()
    config.reward.function = function
    return stored(config, folder).reward.function


def loaded(place: str) -> Callable[..., float]:
    path, _, name = place.rpartition(":")
    found: Callable[..., float] = from_file(Path(path), name, option="reward.function")
    return found


@pytest.mark.parametrize("kind", ["function", "closure", "object", "method", "partial"])
def test_what_a_notebook_defines_does_the_same_out_of_its_file(kind: str, tmp_path: Path) -> None:
    notebook = session()
    found = loaded(with_function(notebook["CASES"][kind], tmp_path))
    assert found("a1b2", "0") == notebook["EXPECTED"][kind]


@pytest.mark.processes
def test_a_stored_function_works_in_a_process_that_knows_nothing_of_the_notebook(tmp_path: Path) -> None:
    place, _, name = with_function(session()["closure"](5), tmp_path).rpartition(":")
    code = f"import runpy; print(runpy.run_path({place!r})[{name!r}]('a1b2', '0'))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "7\n"


@pytest.mark.parametrize("kind", ["function", "closure", "object", "method", "partial"])
def test_the_same_cell_in_another_session_continues_the_run_and_another_variable_does_not(
    kind: str, tmp_path: Path
) -> None:
    first = with_function(session()["CASES"][kind], tmp_path)
    assert with_function(session(cell="ipykernel_2/77.py")["CASES"][kind], tmp_path) == first
    other = with_function(session(weight=3)["CASES"][kind], tmp_path)
    assert (other == first) is (kind in ("closure", "partial")), "which do not refer to the variable"


def test_a_variable_of_a_closure_is_part_of_the_function(tmp_path: Path) -> None:
    closure = session()["closure"]
    assert with_function(closure(5), tmp_path) != with_function(closure(6), tmp_path)


def test_a_function_at_the_top_of_a_module_is_named_by_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rewards_here.py").write_text("def score(solution_str, ground_truth):\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    from my_rewards_here import score  # type: ignore[import-not-found]

    assert with_function(score, tmp_path / "out") == f"{tmp_path}/my_rewards_here.py:score"
    assert not (tmp_path / "out").exists()


@pytest.mark.processes
def test_a_function_may_use_modules_that_are_next_to_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_notebook.py").write_text("POINTS = 9.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec("import beside_the_notebook\ndef score(s, g):\n    return beside_the_notebook.POINTS\n", variables)
    place, _, name = with_function(variables["score"], tmp_path / "out").rpartition(":")
    code = f"import runpy; print(runpy.run_path({place!r})[{name!r}]('', ''))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "9.0\n"


def test_a_function_that_cannot_be_sent_is_refused_with_the_variable_that_is_in_the_way(tmp_path: Path) -> None:
    lock = threading.Lock()

    def score(solution_str: str, ground_truth: str) -> float:
        with lock:
            return 1.0

    with pytest.raises(ValueError, match="cannot be sent") as caught:
        with_function(score, tmp_path)
    message = str(caught.value)
    assert message.startswith(
        "reward.function is the function score, which cannot be sent to the processes that call it"
    )
    assert "because of lock (lock)" in message and "set reward.function=path/to/file.py:score" in message
    with pytest.raises(ValueError, match=r"reward.function is a int; expected a function, or path/to/file.py:name"):
        with_function(3, tmp_path)


def test_another_version_of_python_is_reported_without_a_crash(tmp_path: Path) -> None:
    place = with_function(session()["closure"](5), tmp_path)
    path = Path(place.rpartition(":")[0])
    path.write_text(path.read_text().replace(f"!= {tuple(sys.version_info[:2])}", "!= (2, 7)"))
    with pytest.raises(
        ValueError, match=r"this function was stored by Python 3\.\d+, and no other version can load it"
    ):
        loaded(place)


def test_stored_functions_are_private_and_readable_by_people(tmp_path: Path) -> None:
    def score(solution_str: str, ground_truth: str) -> float:
        return float(solution_str == str(tmp_path))

    path = Path(with_function(score, tmp_path).rpartition(":")[0])
    assert "return float(solution_str == str(tmp_path))" in path.read_text()
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


def test_functions_of_every_kind_are_named_by_files(tmp_path: Path) -> None:
    notebook = session()
    config = config_of(
        reward={"functions": {"a": {"function": notebook["score"], "weight": 2.0}, "b": {"function": "gsm8k"}}},
        algorithm={"adv_estimator": notebook["score"]},
        actor={"policy_loss": notebook["score"]},
        data={"sampler": notebook["score"], "custom_dataset": notebook["score"]},
    )
    found = stored(config, tmp_path)
    places = (found.algorithm.adv_estimator, found.actor.policy_loss, found.data.sampler, found.data.custom_dataset)
    for place in (*places, found.reward.functions["a"]["function"]):
        assert loaded(place)("a1b2", "0") == 4
    assert found.reward.functions["a"]["weight"] == 2.0 and found.reward.functions["b"] == {"function": "gsm8k"}
    assert config.algorithm.adv_estimator is notebook["score"], "the script's own configuration stays as it is"


# --- rows


ROWS = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "1+2=", "answer": "3", "level": np.int64(1)}]


def files_of(rows: Any, folder: Path) -> list[str]:
    config = Config()
    config.data.train_files = rows
    return stored(config, folder).data.train_files


class Dataset:
    """As Hugging Face's: iterable, with a length and rows by their number, but no list."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._rows[index]


@pytest.mark.parametrize("given", [ROWS, tuple(ROWS), Dataset(ROWS), [Dataset(ROWS)], [ROWS], (row for row in ROWS)])
def test_rows_in_memory_are_read_like_rows_of_a_file(given: Any, tmp_path: Path) -> None:
    if not isinstance(given, (list, tuple, Dataset)):
        given = list(given)
    found = read_rows(files_of(given, tmp_path))
    assert [row.values for row in found] == [
        {"prompt": "1+1=", "answer": "2"},
        {"prompt": "1+2=", "answer": "3", "level": 1},
    ]


def test_a_table_is_written_as_parquet_next_to_files_that_are_named(tmp_path: Path) -> None:
    table = pa.table({"prompt": ["1+1="], "answer": ["2"]})
    pq.write_table(table, tmp_path / "own.parquet")
    found = files_of([tmp_path / "own.parquet", table, ROWS], tmp_path / "out")
    assert [Path(file).suffix for file in found] == [".parquet", ".parquet", ".jsonl"]
    assert [row.values["answer"] for row in read_rows(found)] == ["2", "2", "2", "3"]
    assert files_of([table], tmp_path / "out") == found[1:2], "the same rows have the same name"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"prompt": "a"}, 3], "row 1 of data.train_files is a int; expected a dict of columns"),
        (
            [{"prompt": object()}],
            "row 0 of data.train_files has a value that JSON cannot represent: a object. Give text, numbers, lists and",
        ),
        (7, "data.train_files is a int; expected file names, or rows: a list of dicts, a datasets.Dataset"),
    ],
)
def test_rows_that_no_file_can_hold_are_refused_with_their_number(rows: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.").replace("[", r"\[")):
        files_of([rows] if isinstance(rows, list) else rows, tmp_path)


# --- the run


def test_a_run_records_files_so_that_its_config_can_be_composed_again(tmp_path: Path) -> None:
    config = config_of(data={"train_files": ROWS}, reward={"function": session()["score"]}, model={"path": "model"})
    config.model.path = tmp_path / "model"  # type: ignore[assignment]
    config.actor.optim.lr = np.float32(0.5)  # type: ignore[assignment]
    found = stored(config, tmp_path / FROM_PYTHON)
    (tmp_path / "config.yaml").write_text(as_yaml(found))
    assert compose(str(tmp_path / "config.yaml"), []).config == found
    assert found.model.path == str(tmp_path / "model") and found.actor.optim.lr == 0.5


def test_a_value_that_no_configuration_file_can_hold_is_refused_with_its_key(tmp_path: Path) -> None:
    config = Config()
    config.reward.function_kwargs = {"lock": threading.Lock()}
    with pytest.raises(ValueError, match=r"reward.function_kwargs is a lock, but a run's config.yaml has only text"):
        stored(config, tmp_path)


def test_a_run_whose_stored_files_are_gone_says_what_to_give_again(tmp_path: Path) -> None:
    file = f"{tmp_path}/{FROM_PYTHON}/score-1.py"
    [problem] = reward_files_exist(Config(reward=RewardConfig(function=f"{file}:score")))
    remedy = "It held the value that a script or notebook passed for {}: pass the same value again, or name a file."
    assert problem.endswith(remedy.format("reward.function"))
    with pytest.raises(ValueError, match=remedy.format("actor.policy_loss")):
        from_file(Path(file), "score", option="actor.policy_loss")
    [problem] = missing_files("data.train_files", [f"{tmp_path}/{FROM_PYTHON}/a.jsonl"], prepare_command="make data")
    assert problem.endswith(remedy.format("data.train_files"))


def test_metrics_are_a_table_of_steps_with_null_where_a_step_has_none(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    tracker.log(0, {"val/mean@1": 0.25})
    tracker.log(1, {"reward/score_mean": 0.5})
    tracker.log(2, {"reward/score_mean": 0.75, "val/mean@1": 1.0})
    tracker.close()
    assert metrics_table(tmp_path / "metrics.jsonl").to_pylist() == [
        {"step": 0, "val/mean@1": 0.25, "reward/score_mean": None},
        {"step": 1, "val/mean@1": None, "reward/score_mean": 0.5},
        {"step": 2, "val/mean@1": 1.0, "reward/score_mean": 0.75},
    ]
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["step"] == 0
