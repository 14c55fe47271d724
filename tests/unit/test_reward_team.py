"""The scorer processes of a node together."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.unit._reward import sample, statuses, task
from tests.unit.test_reward_scorer_process import child_pids
from verl_like.reward.team import ScorerTeam

pytestmark = [pytest.mark.alone, pytest.mark.processes]
SCORER = """
import time
from pathlib import Path

def score(solution_str, extra_info):
    if solution_str == "sleep":
        Path(extra_info["file"]).touch()
        time.sleep(1000)
    return 1.0
"""


def test_closing_does_not_wait_for_the_deadline_of_what_is_under_way(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text(SCORER)
    begun, before = tmp_path / "begun", child_pids()
    team = ScorerTeam(task(f"{tmp_path}/scorer.py:score", timeout_s=600), 2)
    assert statuses(team.score([sample("a")] * 9)) == ["ok"] * 9
    ended: list[BaseException] = []

    def scoring() -> None:
        with pytest.raises(RuntimeError, match="are being shut down") as caught:
            team.score([sample("sleep", file=str(begun))])
        ended.append(caught.value)

    thread = threading.Thread(target=scoring)
    thread.start()
    while not begun.exists():
        time.sleep(0.01)
    started = time.monotonic()
    team.close()
    assert time.monotonic() - started < 3 and child_pids() == before
    thread.join(timeout=5)
    assert ended, "the caller gets an error"
