"""``make bench-check``: a ratio beyond its floor is a failure, and every floor is of a key that a benchmark prints."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from benchmarks import _check
from benchmarks._check import Floor
from benchmarks._machine import print_result
from verl_like.machine.processor import _MAKERS, processor

ROOT = Path(__file__).parents[2]
LEAST_1, MOST_01 = Floor(word="least", limit=1.0), Floor(word="most", limit=0.1)
WITHOUT_RESULT = {"plan_table"}  # prints a table
FAMILIES_WITH_FLOORS = {
    key
    for table in tomllib.loads(_check.FLOORS.read_text()).values()
    for key, value in table.items()
    if not value.keys() <= {"least", "most"}
}


@pytest.mark.parametrize(
    ("found", "floor", "says"),
    [
        (1.0, LEAST_1, "holds"),
        (0.99, LEAST_1, "MISSED"),
        (0.1, MOST_01, "holds"),
        (0.11, MOST_01, "MISSED"),
        (None, LEAST_1, "MISSED"),
        (float("nan"), MOST_01, "MISSED"),
        (float("nan"), LEAST_1, "MISSED"),
    ],
)
def test_a_ratio_is_held_against_its_floor(found: float | None, floor: Floor, says: str) -> None:
    assert _check.verdict("exponent", found, floor) == says


def test_only_a_ratio_to_a_peer_may_be_missing() -> None:
    assert _check.verdict("ratio_vs_verl_gae", None, LEAST_1) == "no peer"


FAMILIES = """
[update]
a = { least = 0.9 }
b = { most = 2 }
[update."AMD Zen 4"]
a = { least = 1.1 }
[update."Intel Ice Lake"]
b = { most = 3 }
"""


@pytest.mark.parametrize(
    ("family", "a", "b"),
    [
        ("AMD Zen 4", "at least 1.1 (AMD Zen 4)", "at most 2 (any processor)"),
        ("Intel Ice Lake", "at least 0.9 (any processor)", "at most 3 (Intel Ice Lake)"),
        ("something new", "at least 0.9 (any processor)", "at most 2 (any processor)"),
    ],
)
def test_a_familys_floor_replaces_the_common_one(
    family: str, a: str, b: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "floors.toml").write_text(FAMILIES)
    monkeypatch.setattr(_check, "FLOORS", tmp_path / "floors.toml")
    assert {key: str(floor) for key, floor in _check.floors(family)["update"].items()} == {"a": a, "b": b}


@pytest.mark.processes
def test_a_benchmark_that_fails_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_check, "floors", lambda family: {"nowhere": {"exponent": MOST_01}})
    monkeypatch.setattr("sys.argv", ["bench-check"])
    assert _check.main() == 1
    assert capsys.readouterr().out == f"processor: {processor()}\nFAILED   nowhere\n"


@pytest.mark.parametrize(("ratio", "status"), [(11.0, 0), (9.0, 1)])
def test_a_ratio_beyond_its_floor_fails_the_check(
    ratio: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        _check, "printed", lambda name: {"ratio_vs_verl_gae": ratio, "ratio_vs_verl_grpo": None, "rounds": 5}
    )
    floor = Floor(word="least", limit=10, family="AMD Zen 4")
    monkeypatch.setattr(_check, "floors", lambda family: {"advantages": {"ratio_vs_verl_gae": floor}})
    monkeypatch.setattr("sys.argv", ["bench-check"])
    assert _check.main() == status
    assert f"advantages.ratio_vs_verl_gae is {ratio}, at least 10 (AMD Zen 4)" in capsys.readouterr().out


def test_a_name_without_floors_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench-check", "log_prob"])
    with pytest.raises(SystemExit):
        _check.main()
    assert "log_prob have no floor in floors.toml; these have: log_probs" in capsys.readouterr().err


def test_every_floor_is_of_a_key_that_its_benchmark_prints() -> None:
    table = (ROOT / "benchmarks/README.md").read_text()
    for family in FAMILIES_WITH_FLOORS:
        for name, keys in _check.floors(family).items():
            [row] = re.findall(rf"^\| `{name}` \|.*$", table, re.MULTILINE)
            for key, floor in keys.items():
                assert re.search(rf"\b{key}\b", row), f"{name} prints no {key}"
                assert floor.word in ("least", "most")


def test_families_with_floors_are_those_that_processors_have() -> None:
    assert FAMILIES_WITH_FLOORS, "no table of a family"
    known = {f"{maker} {name}" for maker, names in _MAKERS.values() for name in names.values()}
    assert known >= FAMILIES_WITH_FLOORS


def test_every_result_names_the_processor(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"exponent": 0.5})
    assert json.loads(capsys.readouterr().out) == {"exponent": 0.5, "processor": str(processor())}


def test_every_benchmark_prints_its_result_with_the_processor() -> None:
    for name in re.findall(r"^\| `(\w+)` \|", (ROOT / "benchmarks/README.md").read_text(), re.MULTILINE):
        file = ROOT / f"benchmarks/{name}.py"
        if file.is_file() and name not in WITHOUT_RESULT:
            assert "print_result(" in file.read_text(), f"{name} prints its result without the processor"
