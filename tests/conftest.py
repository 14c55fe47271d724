"""What all tests share."""

import pytest
from hypothesis import settings

from tests.tools import durations
from tests.tools.no_processes import NoProcesses

# Hypothesis's own deadline, 200 ms for each example, is no claim of ours, and a busy machine misses it.
settings.register_profile("verl_like", deadline=None)
settings.load_profile("verl_like")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="update tests/durations.json by these tests")
    parser.addoption("--no-processes", action="store_true", help="fail a test that starts a process")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("no_processes"):
        config.pluginmanager.register(NoProcesses())
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Recorder())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    durations.order(config, items)
