"""Rewards of reasoning-gym's tasks, with the real package: the right answer pays, and what fools a scorer does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reasoning_gym", reason="the package reasoning-gym is not installed (an extra)")

from verl_like.data.files import read_rows
from verl_like.data.reasoning_gym import INSTRUCTION, main, task_rows, write_tasks
from verl_like_graders import reasoning_gym
from verl_like_graders.programs.launcher import fork_server
from verl_like_graders.reasoning_gym import extracted
from verl_like_graders.reasoning_gym_tasks import MAY_BE, TASKS, metadata_text, task_scorer

pytestmark = pytest.mark.processes

REFUSED = {"coin_flip", "game_of_life_halting", "puzzle24"}


def score(
    task: str, response: str, ground_truth: Any, metadata: Any = None, *, question: str = "What?", **options: Any
) -> dict[str, Any]:
    extra = {"question": question, "metadata": metadata_text(metadata or {})}
    return reasoning_gym.compute_score(f"reasoning_gym/{task}", response, ground_truth, extra, **options)


def score_row(row: dict[str, Any], response: str, **options: Any) -> dict[str, Any]:
    return reasoning_gym.compute_score(
        row["data_source"], response, row["reward_model"]["ground_truth"], row["extra_info"], **options
    )


# --- the rows ---


def test_rows_have_the_schema_of_verl_and_survive_the_file(tmp_path: Path) -> None:
    assert write_tasks(["chain_sum", "rush_hour"], tmp_path / "new" / "train.parquet", size=3, seed=1) == 6
    rows = [row.values for row in read_rows([str(tmp_path / "new" / "train.parquet")])]
    assert [row["data_source"] for row in rows] == ["reasoning_gym/chain_sum"] * 3 + ["reasoning_gym/rush_hour"] * 3
    [message] = rows[0]["prompt"]
    assert message == {"role": "user", "content": f"{rows[0]['extra_info']['question']}\n\n{INSTRUCTION}"}
    assert score_row(rows[0], rows[0]["reward_model"]["ground_truth"])["score"] == 1.0
    assert rows[3]["reward_model"]["ground_truth"] is None  # a puzzle with many solutions, and the task names none
    assert score_row(rows[3], "F+1")["score"] == 0.0


def test_two_seeds_share_no_problem() -> None:
    def questions(seed: int) -> set[str]:
        return {row["extra_info"]["question"] for row in task_rows("chain_sum", size=50, seed=seed)}

    assert questions(1) == questions(1) and not questions(1) & questions(2)


@pytest.mark.parametrize(
    "task", ["rearc", "graph_color", "rubiks_cube", "propositional_logic", "countdown", "simple_integration"]
)
def test_a_right_answer_pays_whether_it_is_an_example_a_grid_or_a_formula(task: str) -> None:
    for row in task_rows(task, size=3, seed=4):
        ground_truth = row["reward_model"]["ground_truth"]
        assert score_row(row, f"Let me see.\n<answer>{ground_truth}</answer>") == {
            "score": 1.0,
            "acc": 1.0,
            "pred": ground_truth.strip(),
        }


@pytest.mark.parametrize("task", sorted(REFUSED))
def test_tasks_whose_scorer_takes_wrong_answers_are_not_written(task: str) -> None:
    with pytest.raises(
        ValueError, match=rf"problems of {task} cannot be scored: .*gives full marks to '.*', which is wrong"
    ):
        task_rows(task, size=20, seed=1)


def test_problems_that_their_scorer_gets_wrong_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    rows = task_rows("intermediate_integration", size=40, seed=1)
    assert 20 < len(rows) < 40 and not any("Integral" in row["reward_model"]["ground_truth"] for row in rows)
    assert f"left out {40 - len(rows)} of 40 problems" in caplog.text


def test_the_command_writes_a_file_and_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "train.parquet"
    main(["--task", "chain_sum, gcd", "--size", "4", "--out", str(out)])
    assert capsys.readouterr().out == f"{out}: 8 rows\n" and out.is_file()
    with pytest.raises(SystemExit, match="2"):
        main(["--task", "chain_sums", "--out", str(out)])
    assert "no task 'chain_sums'; expected one of its" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "size", "seed", "message"),
    [
        ("chain_sums", 1, 1, r"has no task 'chain_sums'; expected one of its \d+, such as .*chain_sum"),
        ("composite", 1, 1, r"has no task"),
        ("chain_sum", 0, 1, r"size is 0"),
        ("chain_sum", 1, -1, r"seed -1; expected .* a seed from 0 to 4293"),
    ],
)
def test_rows_that_cannot_be_made_are_refused(task: str, size: int, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task_rows(task, size=size, seed=seed)


def test_metadata_keeps_its_tuples() -> None:
    grid = ((1, 2), (3, 4))
    assert score("arc_1d", "x", "x", {"board": grid})["score"] == 1.0
    assert score("rearc", "1 2\n3 4", "1 2\n3 4", {"output": grid})["score"] == 1.0
    with pytest.raises(ValueError, match=r"rejects the row's ground_truth"):  # the result of a list instead
        score("rearc", "1 2\n3 4", "1 2\n3 4", {"output": [list(line) for line in grid]})


# --- the answer in a response ---


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (" 42\n", "42"),
        ("<answer> 42 </answer>", "42"),
        ("<answer>1</answer> no: <answer>42</answer> done", "42"),
        ("<answer>42", "<answer>42"),
        ("42</answer>", "42</answer>"),
        ("<answer></answer>", ""),
    ],
)
def test_the_last_tagged_text_is_the_answer_or_else_all(response: str, expected: str) -> None:
    assert extracted(response, "answer") == expected


def test_the_tag_can_be_named_or_left_out() -> None:
    assert extracted("<result>42</result>", "result") == "42"
    assert extracted("<answer>42</answer>", "") == "<answer>42</answer>"


# --- what a scorer must not pay for ---


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("answer", ["", " \n", "?", "0", "8", "a" * 10_001, "<answer></answer>", "8 3 1", "1+"])
def test_what_countdown_pays_for_any_answer_is_no_score(answer: str, partial: bool) -> None:
    metadata = {"numbers": [8, 3, 1], "target": 25}
    assert task_scorer("countdown")("?", {"answer": "8*3 + 1", "metadata": metadata}) == 0.01
    assert score("countdown", answer, "8*3 + 1", metadata, partial=partial)["score"] == 0.0
    assert score("countdown", "1 + 3*8", "8*3 + 1", metadata, partial=partial)["score"] == 1.0


def test_an_answer_at_which_the_scorer_raises_is_wrong() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        task_scorer("prime_factorization")("?", {"answer": "2 × 3", "metadata": {"number": 6}})
    assert score("prime_factorization", "two × three", "2 × 3", {"number": 6}) == {
        "score": 0.0,
        "acc": 0.0,
        "pred": "two × three",
    }


def test_half_right_answers_pay_only_on_request() -> None:
    # Two of seven characters are the right ones.
    assert score("gcd", "12 or 3", "12", partial=True) == {"score": pytest.approx(2 / 7), "acc": 0.0, "pred": "12 or 3"}
    assert score("gcd", "12 or 3", "12")["score"] == 0.0
    # The question holds the answer, too: 2 of 40 characters are what repeating it would pay.
    question = "What is the greatest divisor of 12, 24?".ljust(40, ".")
    assert score("gcd", question, "12", question=question, partial=True)["score"] == 0.0


def test_an_answer_past_ten_thousand_characters_is_not_even_half_right() -> None:
    def half(count: int) -> float:
        return float(score("spell_backward", "a" * count, "abc", partial=True)["score"])

    assert half(10_000) == pytest.approx(1 / 3) and half(10_001) == 0.0


def test_not_a_number_is_near_no_number() -> None:
    complex_metadata = {"result": (3.0, 4.0)}
    assert task_scorer("complex_arithmetic")("nan", {"answer": "3.0 + 4.0i", "metadata": complex_metadata}) == 1.0
    assert score("complex_arithmetic", "nan", "3.0 + 4.0i", complex_metadata)["score"] == 0.0
    assert score("number_sorting", "[NaN, NaN]", '["1", "2"]', {"direction": "ascending"})["score"] == 0.0
    assert score("number_sorting", '["1", "2"]', '["1", "2"]', {"direction": "ascending"})["score"] == 1.0
    assert score("letter_jumble", "banana", "banana")["score"] == 1.0


@pytest.mark.parametrize(
    ("task", "ground_truth", "metadata", "answer"),
    [
        ("countdown", "8*3 + 1", {"numbers": [8, 3, 1], "target": 25}, "8*3+1+0*"),
        ("n_queens", "Q", {"valid_answers": ["Q"]}, "[["),
        ("simple_integration", "x**2", {"variable": "x", "integrand": "2*x"}, "x**2+0*"),
    ],
)
def test_an_answer_is_never_run_as_python(
    task: str, ground_truth: str, metadata: dict[str, Any], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSWER_RAN", raising=False)
    attack = "__import__('os').environ.setdefault('ANSWER_RAN', '1').count('x')" + ("]]" if "[" in answer else "")
    task_scorer(task)(answer + attack, {"question": "", "answer": ground_truth, "metadata": metadata})
    assert os.environ.pop("ANSWER_RAN") == "1"  # the scorer by itself runs it
    assert score(task, answer + attack, ground_truth, metadata)["score"] == 0.0 and "ANSWER_RAN" not in os.environ
    assert score(task, ground_truth, ground_truth, metadata)["score"] == 1.0


QUEENS = "Q _ _ _"
CLASS_GETITEM = (
    "[[(c := type('C', (), {'__class_getitem__': lambda k, i: 1})), c[0]]]",
    "[a for a in [1] for type(a).x in [1]]",
    "[[x for x in ().__class__.__base__.__subclasses__]]",
    "__builtins__[`eval`]",
    "[f'{1}']",
    "[re.compile.__class__]",
    "[*map]",
    "9**9**9",
    "[0]*10**10",
)


@pytest.mark.parametrize("answer", CLASS_GETITEM)
@pytest.mark.parametrize("task", ["n_queens", "binary_matrix", "spiral_matrix", "string_insertion"])
def test_a_scorer_that_evaluates_gets_words_and_literals_alone(task: str, answer: str) -> None:
    assert not MAY_BE[task](answer)
    assert MAY_BE[task]("[[1, 2], ['a', -1.5]]") and MAY_BE[task]("0 1 2\n_ Q")


@pytest.mark.parametrize("answer", ["8**8**8**8", "x^9^9^9^9", "9" * 5000 + "/7", "(" * 400 + "x" + ")" * 400])
@pytest.mark.parametrize(
    ("task", "ground_truth", "metadata"),
    [("simple_integration", "x**2", {"variable": "x", "integrand": "2*x"}), ("polynomial_multiplication", "x**2", {})],
)
def test_a_formula_that_never_ends_is_wrong_and_no_failure(
    task: str, ground_truth: str, metadata: dict[str, Any], answer: str
) -> None:
    started = time.monotonic()
    assert score(task, answer, ground_truth, metadata, timeout_s=2.0)["score"] == 0.0
    assert time.monotonic() - started < 10.0


def test_each_answer_is_scored_in_its_own_process() -> None:
    """Whatever an answer does to its scorer ends with it."""
    assert reasoning_gym_pids(reasoning_gym.Problem("gcd", "What?", "7", metadata_text({}))) == 2


def reasoning_gym_pids(problem: Any) -> int:
    """Return the number of processes that scored two answers."""
    server = fork_server(reasoning_gym._TASKS)
    pids = set()
    start = server.start

    def noted(*args: Any, **kwargs: Any) -> Any:
        process = start(*args, **kwargs)
        pids.add(process._pid)
        return process

    server.start = noted  # type: ignore[method-assign]
    try:
        for answer in ("8", "9"):
            reasoning_gym._mark(problem, answer, 30.0)
    finally:
        server.start = start  # type: ignore[method-assign]
    return len(pids)


@pytest.mark.parametrize(
    ("task", "ground_truth", "metadata", "answer"),
    [
        ("simple_integration", "x**2 + C", {"variable": "x", "integrand": "2*x"}, "Integral(2*x, x)"),
        ("simple_integration", "x**2 + C", {"variable": "x", "integrand": "2*x"}, "integrate(2*x, x)"),
        ("countdown", "3*(2 + 1)", {"numbers": [2, 3, 1], "target": 9}, "2**3 + 1"),
        ("countdown", "5*24*1", {"numbers": [1, 5, 24], "target": 120}, "5!*1**24"),
    ],
)
def test_tricks_that_compute_the_answer_are_no_answer(
    task: str, ground_truth: str, metadata: dict[str, Any], answer: str
) -> None:
    assert task_scorer(task)(answer, {"question": "", "answer": ground_truth, "metadata": metadata}) == 1.0
    assert score(task, answer, ground_truth, metadata)["score"] == 0.0


def test_sokoban_takes_moves_and_nothing_else() -> None:
    [row] = task_rows("sokoban", size=1, seed=1)
    ground_truth = row["reward_model"]["ground_truth"]
    assert score_row(row, ground_truth)["score"] == 1.0 and score_row(row, f"I say {ground_truth}")["score"] == 0.0


@pytest.mark.parametrize(
    ("source", "ground_truth", "extra", "message"),
    [
        (
            "reasoning_gym",
            "4",
            {"question": "", "metadata": "{}"},
            r"data_source is 'reasoning_gym'; expected reasoning_gym/TASK",
        ),
        (
            "reasoning_gym/gcds",
            "4",
            {"question": "", "metadata": "{}"},
            r"has no task 'gcds'; expected one of its \d+, such as .*; did you mean gcd\?",
        ),
        ("reasoning_gym/gcd", "4", {"question": ""}, r"extra_info has \['question'\] and ground_truth is a str"),
        (
            "reasoning_gym/gcd",
            4,
            {"question": "", "metadata": "{}"},
            r"ground_truth is a int; expected .* text or None",
        ),
        ("reasoning_gym/gcd", "", {"question": "", "metadata": "{}"}, r"rejects the row's ground_truth ''"),
        (
            "reasoning_gym/countdown",
            "8+1",
            {"question": "", "metadata": '{"numbers": [8, 1], "target": 10}'},
            r"row's ground_truth '8\+1'",
        ),
        (
            "reasoning_gym/puzzle24",
            "8*3*1*1",
            {"question": "", "metadata": '{"numbers": [8, 3, 1, 1]}'},
            r"full marks to '6\*4\*1\*1'",
        ),
    ],
)
def test_a_row_that_cannot_be_scored_is_an_error_and_no_score(
    source: str, ground_truth: Any, extra: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        reasoning_gym.compute_score(source, "4", ground_truth, extra)


def test_without_the_package_the_remedy_is_named() -> None:
    code = "import sys; sys.modules['reasoning_gym'] = None; import verl_like_graders.reasoning_gym"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "ValueError: the reward of reasoning_gym needs the package reasoning-gym" in done.stderr
    assert "pip install 'verl-like[reasoning-gym]'" in done.stderr


@pytest.mark.parametrize("task", sorted(TASKS - REFUSED))
def test_every_task_pays_its_right_answers_and_no_junk(task: str) -> None:
    junk = [
        "",
        " ",
        "?",
        "0 0",
        "the quick brown fox",
        "9" * 9000,
        "a" * 20_000,
        "\u2603 \u0661",
        "\x00",
        "nan",
        "1e999",
        "[NaN]",
        "'",
        "(" * 3000,
        "[" * 3000,
        ",",
        "1/0",
        "null",
        "{}",
        "[[[]]]",
        '{"a": []}',
    ]
    for row in task_rows(task, size=2, seed=3):
        ground_truth = row["reward_model"]["ground_truth"]
        assert ground_truth is None or score_row(row, ground_truth)["score"] == 1.0
        problem = reasoning_gym.Problem(
            task, row["extra_info"]["question"], ground_truth, row["extra_info"]["metadata"]
        )
        answers = [*junk, row["extra_info"]["question"]]
        marks = dict(zip(answers, reasoning_gym.marks(problem, answers, timeout_s=60.0), strict=True))
        assert max(marks.values()) < reasoning_gym.FULL_MARK, marks
