"""Options in words, and what differs between two configurations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from verl_like.cli import main
from verl_like.config.options import options
from verl_like.config.page import help_text, page
from verl_like.config.render import differences

ROOT = Path(__file__).parents[2]


def test_the_page_of_options_is_that_of_the_schema() -> None:
    reported = "python -m verl_like.config.page > docs/config.md makes it anew"
    made = page()
    assert (ROOT / "docs/config.md").read_text() == made, reported
    assert all(f"| `{name}` |" in made for name in options())


def test_help_is_of_a_section_of_one_option_or_of_all_sections() -> None:
    section = help_text("actor.optim")
    assert "actor.optim.lr=1.0e-06\n    [a number above 0] Peak learning rate of AdamW." in section
    assert "critic.optim.lr" not in section
    assert help_text("rollout.backend").startswith("rollout.backend=vllm\n    [vllm | hf] Generation engine")
    assert f"rollout    {sum(name.startswith('rollout.') for name in options())} options" in help_text("")


def test_help_on_what_is_no_section_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "rolout"]) == 2
    assert "rolout is neither a section nor an option; did you mean rollout?" in capsys.readouterr().err


def test_two_recipes_are_compared_option_by_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, n in (("a", 4), ("b", 8)):
        (tmp_path / f"{name}.yaml").write_text(f"rollout: {{n: {n}}}\n")
    names = [str(tmp_path / f"{name}.yaml") for name in "ab"]
    assert differences(*names) == "rollout.n: 4 | 8\n"
    assert differences(names[0], names[0]) == "no option differs\n"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("rollout: {n: 5}\n")
    assert main(["config", "--diff", names[0], str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == "rollout.n: 4 | 5\n"
    assert main(["config", "--diff", names[0]]) == 2
    assert "found 1 names to compare, expected two recipes or run folders" in capsys.readouterr().err


def test_docs_may_be_of_one_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--docs", "cluster"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("cluster:\n") and "num_nodes" in out and "\nrollout:" not in out


@pytest.mark.parametrize(("word", "reported"), [("trian", "did you mean train?"), ("xyz", "see verl-like --help")])
def test_a_misspelt_command_is_reported_with_the_nearest(
    word: str, reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 2 and reported in capsys.readouterr().err


def test_the_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("verl-like ")


@pytest.mark.processes
def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    read, written = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "verl_like", "help", "trainer"]
    done = subprocess.run(
        command, stdout=written, stderr=subprocess.PIPE, text=True, timeout=120, cwd=ROOT, env=environment, check=False
    )
    os.close(written)
    assert (done.returncode, done.stderr) == (0, "")
