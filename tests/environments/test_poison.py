"""Episodes that hang, crash, flood, fork or are killed: the others have the same tokens and rewards as without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments._poison import STATUS, outcome, played
from tests.environments.test_contracts import Playing, contents
from verl_like.environments.processes import EnvironmentProcesses, ProcessSettings

pytestmark = pytest.mark.processes


def test_each_kind_of_poison_has_its_status_and_no_other_episode_changes(tmp_path: Path) -> None:
    kinds = [*STATUS, "", "", ""]
    columns = [{"do": do, "number": row, "file": str(tmp_path / str(row))} for row, do in enumerate(kinds)]
    samples, _ = played(tmp_path, columns, call_timeout_s=3.0)
    found = {do: sample.facts["environment_status"] for do, sample in zip(kinds, samples, strict=True)}
    assert found == {**STATUS, "": "ok"}
    for do, sample in zip(kinds, samples, strict=True):
        if found[do] == "ok" and do != "calls":  # whose results use up the budget of tokens
            assert sample.facts["environment_reward"] == sample.row * 3 / 8


@pytest.mark.slow
@pytest.mark.alone
def test_eight_poisoned_episodes_of_256_harm_no_other_one_and_cost_a_deadline(tmp_path: Path) -> None:
    poison = ["hang", "crash", "large", "raise", "twin", "kill", "stop", "late"]
    clean = [{"do": "", "number": row} for row in range(256)]
    poisoned = [{**column, "do": poison[row // 32] if row % 32 == 5 else ""} for row, column in enumerate(clean)]
    timeout_s = 10.0
    expected, clean_s = played(tmp_path, clean, call_timeout_s=timeout_s)
    found, seconds = played(tmp_path, poisoned, call_timeout_s=timeout_s)
    print(f"clean {clean_s:.1f} s, poisoned {seconds:.1f} s")
    for column, before, after in zip(poisoned, expected, found, strict=True):
        if column["do"]:
            assert after.facts["environment_status"] == STATUS[column["do"]]
        else:
            assert outcome(after) == outcome(before)
    assert seconds < clean_s + timeout_s + 2.0


@pytest.mark.slow
def test_a_turn_of_ten_thousand_tool_calls_is_answered(tmp_path: Path) -> None:
    (file := tmp_path / "user.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    processes = EnvironmentProcesses(ProcessSettings(tools=str(file)))
    processes.start()
    processes.load()
    playing = Playing(processes)
    process, _ = playing.reset()
    found = playing.step(process, calls=tuple(("double", {"x": x}) for x in range(10_000)))
    processes.close()
    assert found["num_tool_calls"] == 10_000 and found["num_tool_errors"] == 0
    assert contents(found) == [str(2 * x) for x in range(10_000)]
