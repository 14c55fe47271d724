"""What scorer processes know of the run's secrets, and who may look into them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.unit._reward import sample, scorer_process, statuses, task
from verl_like import doctor
from verl_like.machine.findings import Status
from verl_like.reward.environment import scorer_environment
from verl_like.reward.specs import FunctionSpec
from verl_like_graders.programs import landlock

RUNS = {
    "PATH": "/bin",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "HF_TOKEN": "hf",
    "WANDB_API_KEY": "wandb",
    "AWS_SECRET_ACCESS_KEY": "aws",
    "DATABASE_URL": "postgres://me:password@host",
    "MY_KEY": "mine",
    "https_proxy": "http://me:password@proxy",
}


def names(function: str, **kwargs: object) -> set[str]:
    return set(scorer_environment([FunctionSpec("", function, kwargs)], RUNS))


@pytest.mark.parametrize("function", ["", "code", "math", "reasoning_gym"])
def test_built_in_graders_see_no_secret(function: str) -> None:
    assert names(function) == {"PATH", "LC_ALL", "OMP_NUM_THREADS"}


def test_a_grader_that_calls_a_service_sees_the_variables_that_it_names_and_the_proxy() -> None:
    seen = {"PATH", "LC_ALL", "OMP_NUM_THREADS", "MY_KEY", "https_proxy"}
    assert names("llm_judge", api_key_env="MY_KEY") == seen
    assert names("remote_http", headers={"Authorization": "Bearer ${MY_KEY}"}) == seen
    assert names("remote_http", url="http://host") == seen - {"MY_KEY"}


def test_a_function_of_the_users_sees_what_the_run_sees() -> None:
    assert names("rewards.py:score") == set(RUNS)
    both = scorer_environment([FunctionSpec("a", "code"), FunctionSpec("b", "rewards.py:score")], RUNS)
    assert both == RUNS


def below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


@pytest.mark.processes
def test_running_scorers_have_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret-8271")
    before = set(below(os.getpid()))
    with scorer_process(task("code")) as scorer:
        ground_truth = {"inputs": [""], "outputs": ["3\n"]}
        assert statuses(scorer.score([sample("```python\nprint(3)\n```", ground_truth)])) == ["ok"]
        found = below(os.getpid())
        assert len(found) >= 5, "subreapers, scorers and a fork server"
        # An earlier test may have started the fork server.
        assert len([each for each in found if each not in before]) >= 4, "subreapers and scorers"
        for process in found:
            # If it can be read at all: it belongs to root.
            with suppress(PermissionError):
                assert b"secret-8271" not in Path(f"/proc/{process.pid}/environ").read_bytes()


@pytest.mark.processes
def test_only_root_may_inspect_scorers(tmp_path: Path) -> None:
    """Read ``PR_GET_DUMPABLE`` in the scorer process itself, by a function that it runs."""
    file = tmp_path / "score.py"
    file.write_text(
        "import ctypes\ndef score(solution_str, **_):\n    return float(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
    )
    with scorer_process(task(f"{file}:score")) as scorer:
        assert scorer.score([sample("?")])[0].score == 0.0


def test_doctor_says_how_far_programs_are_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 3)
    assert "Landlock (version 3)" in doctor.graded_programs().value
    monkeypatch.setattr(landlock, "version", lambda: 0)
    finding = doctor.graded_programs()
    assert finding.status is Status.NOTE and "do not score" in finding.value
    assert "allow_without_landlock=true" in finding.remedy
