"""The tool of the recipe: search documents by BM25 (Robertson and Zaragoza, 2009).

``SEARCH_CORPUS`` names the documents: paths or patterns of JSON Lines files, separated by commas. Each line has
``text`` and may have ``title``. The files are read once, when this file is loaded; the processes of episodes share
them.
"""

from __future__ import annotations

import glob
import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

CORPUS = "data/search/corpus.jsonl"
K1, B = 1.2, 0.75  # of the paper: saturation of repeated words, and how much long documents are discounted
NUM_RESULTS = 3
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Document:
    """A document of the corpus."""

    title: str
    text: str


class Bm25:
    """An inverted index: for each word, the documents with it.

    A document's score is the sum over the query's distinct words of ``idf * f * (K1 + 1) / (f + K1 * norm)`` with
    ``idf = log(1 + (N - n + 0.5) / (n + 0.5))`` and ``norm = 1 - B + B * length / mean length``.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        self._found_in: dict[str, list[tuple[int, int]]] = {}  # word -> (document, how often)
        lengths = []
        for number, document in enumerate(documents):
            words = _words(f"{document.title} {document.text}")
            lengths.append(len(words))
            for word, count in Counter(words).items():
                self._found_in.setdefault(word, []).append((number, count))
        mean = sum(lengths) / max(len(lengths), 1)
        self._norms = [1 - B + B * length / mean for length in lengths]

    def best(self, query: str, num: int) -> list[Document]:
        """Return the ``num`` documents with the highest scores; of equal ones the first. Others score 0."""
        scores: dict[int, float] = {}
        for word in set(_words(query)):
            found = self._found_in.get(word, [])
            idf = math.log(1 + (len(self.documents) - len(found) + 0.5) / (len(found) + 0.5))
            for number, count in found:
                part = idf * count * (K1 + 1) / (count + K1 * self._norms[number])
                scores[number] = scores.get(number, 0.0) + part
        ranked = sorted(scores, key=lambda number: (-scores[number], number))
        return [self.documents[number] for number in ranked[:num]]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _read(patterns: str) -> list[Document]:
    """Read the corpus.

    Raises:
        ValueError: a pattern names no file, or a line is no document.
    """
    documents = []
    for pattern in patterns.split(","):
        files = sorted(glob.glob(os.path.expanduser(pattern.strip())))
        if not files:
            raise ValueError(
                f"SEARCH_CORPUS names {pattern.strip()!r}, but there is no such file (looked from {os.getcwd()}). Set "
                "it to the JSON Lines files of your documents, or run recipes/search/run.sh, which makes some."
            )
        for file in files:
            with open(file, encoding="utf-8") as lines:
                documents += [_document(line, f"{file}:{number}") for number, line in enumerate(lines, 1)]
    return documents


def _document(line: str, where: str) -> Document:
    try:
        found = json.loads(line)
        return Document(str(found.get("title", "")), str(found["text"]))
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f'{where} is {line[:80]!r}; expected a document such as {{"text": "..."}}.') from error


_INDEX = Bm25(_read(os.environ.get("SEARCH_CORPUS", CORPUS)))


def search(query: str) -> str:
    """Search the documents.

    Args:
        query: words that the documents should have.
    """
    found = _INDEX.best(query, NUM_RESULTS)
    if not found:
        return "No document has any of these words."
    return "\n".join(f"{document.title}: {document.text}".removeprefix(": ") for document in found)
