"""The recipe search: its documents and questions, its ranking, and its reward."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType

import pytest

from recipes.search import prepare
from recipes.search.reward import right_answer

ROOT = Path(__file__).parents[2]


def loaded(monkeypatch: pytest.MonkeyPatch, corpus: str) -> ModuleType:
    """Load the file of tools, which reads the corpus."""
    monkeypatch.setenv("SEARCH_CORPUS", corpus)
    spec = importlib.util.spec_from_file_location("search_tools", ROOT / "recipes/search/tools.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "search_tools", module)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def written(file: Path, *documents: dict[str, str]) -> str:
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return str(file)


def test_scores_are_those_of_the_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = written(tmp_path / "c.jsonl", {"text": "red red fox"}, {"text": "red"}, {"text": "blue sea of ice"})
    tools = loaded(monkeypatch, corpus)
    # "red" is in 2 of 3 documents: idf = log(1 + 1.5/2.5). Lengths are 3, 1 and 4, in the mean 8/3.
    idf = math.log(1.6)
    first = idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / (8 / 3)))
    second = idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / (8 / 3)))
    assert first < second
    found = tools.Bm25(tools._read(corpus)).best("Red, red?", 3)
    assert [document.text for document in found] == ["red", "red red fox"]
    assert [document.text for document in tools.Bm25(tools._read(corpus)).best("fox red", 1)] == ["red red fox"]


def test_the_tool_returns_titles_and_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "a.jsonl", {"title": "Ana", "text": "Ana was born in Rask."})
    written(tmp_path / "b.jsonl", {"text": "Rask is a town."})
    tools = loaded(monkeypatch, f"{tmp_path}/*.jsonl")
    assert tools.search("Rask town") == "Rask is a town.\nAna: Ana was born in Rask."
    assert tools.search("nothing here") == "No document has any of these words."


def test_files_that_are_no_corpus_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"SEARCH_CORPUS names '.*none.jsonl', but there is no such file"):
        loaded(monkeypatch, str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match=r'c.jsonl:1 is .*; expected a document such as {"text"'):
        loaded(monkeypatch, written(tmp_path / "c.jsonl", {"title": "no text"}))


def test_three_searches_answer_the_longest_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "NUM_COMPANIES", 200)
    counts = prepare.write_data(tmp_path, seed=1)
    assert counts["test.parquet"] == 2 * 20 and counts["train.parquet"] == 2 * 180
    tools = loaded(monkeypatch, str(tmp_path / "corpus.jsonl"))
    for company in prepare.companies(1)[:40]:
        assert f"founded by {company.founder}" in tools.search(f"founder of {company.name}")
        assert company.town in tools.search(f"{company.founder} born")
        assert company.river in tools.search(f"town {company.town} river")


@pytest.mark.parametrize(
    ("last", "score"),
    [
        ({"role": "assistant", "content": "So it is near.\nAnswer: the Rask."}, 1.0),
        ({"role": "assistant", "content": "Rask"}, 0.0),
        ({"role": "assistant", "content": "Answer: Rask or Tam"}, 0.0),
        ({"role": "assistant", "content": "Answer: Tam\nAnswer: rask"}, 1.0),
        ({"role": "tool", "content": "Answer: Rask"}, 0.0),
        ({"role": "assistant", "content": None}, 0.0),
    ],
)
def test_only_the_last_answer_of_the_policy_counts(last: dict[str, str | None], score: float) -> None:
    assert right_answer([[{"role": "assistant", "content": "Answer: Rask"}, last]], ["Rask"]) == [score]
