"""What all tests share."""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.tools import durations
from tests.tools.no_processes import NoProcesses
from tests.tools.time_limit import TimeLimit

# Hypothesis's own deadline, 200 ms for each example, is no claim of ours, and a busy machine misses it.
settings.register_profile("verl_like", deadline=None)
settings.load_profile("verl_like")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="update tests/durations.json by these tests")
    parser.addoption("--no-processes", action="store_true", help="fail a test that starts a process")
    parser.addoption("--max-minutes", type=float, help="skip the tests that have not started after so many minutes")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # imports make many objects that stay: going through them takes a third of the time of the collection
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell's background job; processes would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("no_processes"):
        config.pluginmanager.register(NoProcesses())
    if config.getoption("record_durations"):
        config.pluginmanager.register(durations.Recorder())
    if config.getoption("max_minutes") is not None:
        config.pluginmanager.register(TimeLimit(config.getoption("max_minutes")))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    config.stash[durations.COLLECTED] = [*items]
    yield
    durations.order(config, items)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
