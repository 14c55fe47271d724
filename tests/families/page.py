"""What ``docs/models.md`` says of each family, which tests/e2e/test_families.py runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.families.models import FAMILIES

PAGE = Path(__file__).parents[2] / "docs/models.md"

HEAD = """# Models

Made by `python -m tests.families.page > docs/models.md`. Of each family a small model with random weights makes two
steps of GRPO on the real stack, on two CPU cores in float32 (`tests/e2e/test_families.py`): the log-probs that trainer
and vLLM have of each token differ by less than 1e-4, and those of the second step are of weights that have learned and
were handed over. Larger models of a family have the same code; none of them was run here.

| family | models | what it has of its own | needs |
|---|---|---|---|
"""
TAIL = """
A model is refused before anything starts where its numbers would be wrong: logits that are scaled behind the output
layer (Granite, Cohere), quantised weights, layers that mix the tokens of packed rows (`model.remove_padding=false`
computes those row by row), attention sinks (gpt-oss). So is one that is no language model of text, as its
`config.json` says: one that reads pictures or sound, an encoder, an encoder with a decoder.
"""


def page() -> str:
    return HEAD + "".join(_rows()) + TAIL


def _rows() -> Iterator[str]:
    for name, family in FAMILIES.items():
        needs = " ".join(f"`{override}`" for override in family.overrides)
        yield f"| {name} | {family.models} | {family.peculiar} | {needs} |\n"


if __name__ == "__main__":
    print(page(), end="")
