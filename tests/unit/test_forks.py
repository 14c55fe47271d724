"""The fork server of a run is started before the checks, and serves only a run that needs the same."""

from __future__ import annotations

import psutil
import pytest

from verl_like.config.schema import Config
from verl_like.runs.forks import Forks

pytestmark = pytest.mark.processes


def config(**env: str) -> Config:
    found = Config()
    found.cluster.env = env
    found.cluster.device = "cpu"
    return found


def servers() -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if "fork_server.server" in " ".join(process.cmdline())]


def test_a_server_that_fits_is_adopted_and_ends_with_its_run() -> None:
    forks = Forks()
    with forks.starting(config(), generates=False):
        [server] = servers()
        with forks.started(config(), generates=False) as variables:
            assert variables and servers() == [server]
        assert not servers()


def test_a_server_that_does_not_fit_is_replaced() -> None:
    forks = Forks()
    with forks.starting(config(), generates=False):
        [early] = servers()
        with forks.started(config(NAME="value"), generates=False) as variables:
            [server] = servers()
            assert variables and server != early
        assert not servers()


def test_a_guess_stays_if_the_configuration_needs_the_same_server() -> None:
    forks = Forks()
    with forks.starting(config(), generates=False):
        [guessed] = servers()
        with forks.starting(config(), generates=False), forks.started(config(), generates=False):
            assert servers() == [guessed]
        assert not servers()


def test_a_guess_ends_if_the_configuration_needs_another_server() -> None:
    forks = Forks()
    with forks.starting(config(), generates=False):
        [guessed] = servers()
        with forks.starting(config(NAME="value"), generates=False):
            [server] = servers()
            assert server != guessed
            with forks.started(config(NAME="value"), generates=False):
                assert servers() == [server]
        assert not servers()


def test_a_server_is_replaced_if_the_environment_has_changed_since(monkeypatch: pytest.MonkeyPatch) -> None:
    forks = Forks()
    with forks.starting(config(), generates=False):
        [early] = servers()
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # as a user's file may do when it is imported
        with forks.started(config(), generates=False):
            [server] = servers()
            assert server != early


def test_variables_that_no_library_reads_do_not_replace_it(monkeypatch: pytest.MonkeyPatch) -> None:
    forks = Forks()
    with forks.starting(config(), generates=False):
        [early] = servers()
        monkeypatch.setenv("VERL_LIKE_CACHE", "/nowhere")
        with forks.started(config(), generates=False):
            assert servers() == [early]


def test_variables_that_cannot_be_set_are_left_to_the_start() -> None:
    wrong = config(**{"A=B": "value"})
    forks = Forks()
    with forks.starting(wrong, generates=True):
        assert not servers()
        with pytest.raises(ValueError, match="illegal environment variable name"), forks.started(wrong, generates=True):
            pass


def test_a_server_that_no_run_takes_ends() -> None:
    with Forks().starting(config(), generates=True):
        assert servers()
    assert not servers()


def test_an_impossible_configuration_is_left_to_the_checks() -> None:
    wrong = config()
    wrong.cluster.threads_per_worker = "many"  # type: ignore[assignment]
    with Forks().starting(wrong, generates=True):
        assert not servers()
