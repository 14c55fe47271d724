"""Read the labelled pairs and texts of ``corpus/``; ``corpus/README.md`` describes them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

CORPUS_FOLDER = Path(__file__).parent / "corpus"


class Pair(NamedTuple):
    """One labelled response. ``grader`` is a key of the table of graders in the test."""

    grader: str
    response: str
    truth: str
    is_right: bool
    reason: str


def tables(file: str) -> dict[str, list[Pair]]:
    """Read the pairs of a file by the name of their table, sorted as in the file."""
    found: dict[str, list[Pair]] = defaultdict(list)
    for line in (CORPUS_FOLDER / file).read_text().splitlines():
        row = json.loads(line)
        found[row.pop("table")].append(Pair(**row))
    return dict(found)


def pairs(file: str) -> tuple[Pair, ...]:
    """Read all pairs of a file."""
    return tuple(pair for table in tables(file).values() for pair in table)


def texts_around_a_box(kind: str) -> tuple[str, ...]:
    """Read the texts of one kind: ``alone``, ``with_unit`` or ``part``; the box is □ in them."""
    rows = [json.loads(line) for line in (CORPUS_FOLDER / "boxes.jsonl").read_text().splitlines()]
    return tuple(row["text"] for row in rows if row["kind"] == kind)


CORPUS = pairs("verdicts.jsonl")
CHOICES = tables("verdicts.jsonl")["choices"]
CHOICES_IN_STYLES = pairs("choices_in_styles.jsonl")
KNOWN_LIMITS = pairs("known_limits.jsonl")
STYLES = pairs("styles.jsonl")
CLASSES = tables("classes.jsonl")
VALUES = pairs("classes.jsonl")
