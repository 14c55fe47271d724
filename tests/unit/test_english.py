"""``tests/tools/english.py`` finds what it is for, and its list of files to rewrite only shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import english
from tests.tools.english import in_module, in_page, main


def test_a_page_with_forbidden_words_is_reported_by_line() -> None:
    assert list(in_page("A run starts.\n\nIt waits behind the rollout.\n")) == [(3, "behind", "after")]


@pytest.mark.parametrize("text", ["    behind\n", "```\nbehind\n```\n", "Use `behind`.\n", "[x](behind.md)\n"])
def test_code_and_targets_of_links_are_left_out(text: str) -> None:
    assert list(in_page(text)) == []


def test_a_long_sentence_is_reported_with_its_number_of_words() -> None:
    [(line, found, _)] = in_page("Short.\n\n" + "word " * 50 + "end.\n")
    assert (line, found) == (3, "a sentence of 51 words")


def test_docstrings_comments_and_messages_of_a_module_are_read() -> None:
    source = 'def f():\n    """The size."""\n    # told by f\n    raise ValueError("this knob is not one")\n'
    found = sorted((line, words) for line, words, _ in in_module(source))
    assert found == [(2, 'docstring "The ..."'), (3, "told"), (4, "knob")]


def test_names_of_tests_are_read_and_their_docstrings_may_be_statements() -> None:
    source = 'def test_a_knob_is_told():\n    """The size is 2."""\n'
    assert sorted((line, words) for line, words, _ in in_module(source)) == [(1, "knob"), (1, "told")]


def test_a_property_may_be_described_by_a_noun() -> None:
    assert list(in_module('class A:\n    @property\n    def f(self):\n        """The size."""\n')) == []


def test_a_finding_in_a_checked_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(english, "ROOT", tmp_path)
    (page := tmp_path / "README.md").write_text("It stands still.\n")
    assert main([str(page)]) == 1
    assert capsys.readouterr().out == "README.md:1: stands still: hang\n"
