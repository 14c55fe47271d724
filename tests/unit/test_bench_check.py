"""``make bench-check``: a ratio beyond its floor is a failure, and every floor is of a key that a benchmark prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import _check

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("found", "bound", "says"),
    [
        (1.0, {"least": 1.0}, "holds"),
        (0.99, {"least": 1.0}, "MISSED"),
        (0.1, {"most": 0.1}, "holds"),
        (0.11, {"most": 0.1}, "MISSED"),
        (None, {"least": 1.0}, "MISSED"),
        (float("nan"), {"most": 0.1}, "MISSED"),
    ],
)
def test_a_ratio_is_held_against_its_floor(found: float | None, bound: dict[str, float], says: str) -> None:
    assert _check.verdict("exponent", found, bound) == says


def test_only_a_ratio_to_a_peer_may_be_missing() -> None:
    assert _check.verdict("ratio_vs_verl_gae", None, {"least": 1.0}) == "no peer"


@pytest.mark.processes
def test_a_benchmark_that_fails_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_check, "floors", lambda: {"nowhere": {"exponent": {"most": 1}}})
    monkeypatch.setattr("sys.argv", ["bench-check"])
    assert _check.main() == 1
    assert capsys.readouterr().out == "FAILED   nowhere\n"


@pytest.mark.parametrize(("ratio", "status"), [(11.0, 0), (9.0, 1)])
def test_a_ratio_beyond_its_floor_fails_the_check(
    ratio: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        _check, "printed", lambda name: {"ratio_vs_verl_gae": ratio, "ratio_vs_verl_grpo": None, "rounds": 5}
    )
    monkeypatch.setattr(_check, "floors", lambda: {"advantages": {"ratio_vs_verl_gae": {"least": 10}}})
    monkeypatch.setattr("sys.argv", ["bench-check"])
    assert _check.main() == status
    assert f"advantages.ratio_vs_verl_gae is {ratio}, at least 10" in capsys.readouterr().out


def test_a_name_without_floors_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench-check", "log_prob"])
    with pytest.raises(SystemExit):
        _check.main()
    assert "log_prob have no floor in floors.toml; these have: log_probs" in capsys.readouterr().err


def test_every_floor_is_of_a_key_that_its_benchmark_prints() -> None:
    table = (ROOT / "benchmarks/README.md").read_text()
    for name, keys in _check.floors().items():
        [row] = re.findall(rf"^\| `{name}` \|.*$", table, re.MULTILINE)
        for key, bound in keys.items():
            assert re.search(rf"\b{key}\b", row), f"{name} prints no {key}"
            assert set(bound) <= {"least", "most"} and len(bound) == 1
