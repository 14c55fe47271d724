"""Responses of several messages in every chat template of the trl wheel: token ids equal TRL 1.16's. ``make peers``."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.unit._template_tokenizers import byte_tokenizer
from tests.unit.test_environments_history import ADD, REFUSES_TOOLS, Turns, has_parts
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.data.pairs import pair_rows, scored_pair_rows
from verl_like.data.unpaired import unpaired_rows
from verl_like.protocol import DataProto

KINDS = {
    "plain": {"uses_tools": False, "reasons": False},
    "reasons": {"uses_tools": False, "reasons": True},
    "tools": {"uses_tools": True, "reasons": False},
}
NO_LIMIT = {"max_prompt_length": 10_000, "max_response_length": 10_000}


@pytest.fixture(scope="module")
def trl() -> Any:
    return pytest.importorskip("trl", reason="trl is not installed: make peers")


class Rows(list[dict[str, Any]]):
    """The methods of a data set that TRL calls; Arrow would add null to messages for the keys of others."""

    column_names = None

    def map(self, function: Any, fn_kwargs: dict[str, Any] | None = None, **_: Any) -> Rows:
        return Rows({**row, **function(dict(row), **(fn_kwargs or {}))} for row in self)


def pair(name: str, kind: str) -> dict[str, Any]:
    """A prompt of two turns, with a chosen response of two turns and a rejected one of three."""
    turns = Turns(**KINDS[kind], has_parts=has_parts(name))
    last = Turns(uses_tools=False, reasons=KINDS[kind]["reasons"], has_parts=has_parts(name))
    follow = [[turns.policy(number), *turns.following(number)] for number in range(4)]
    return {
        "prompt": [*turns.first(), *follow[0]],
        "chosen": [*follow[1], last.policy(8)],
        "rejected": [*follow[2], *follow[3], last.policy(9)],
        **({"tools": [ADD]} if kind == "tools" else {}),
    }


def ids(table: DataProto) -> list[tuple[list[int], list[int]]]:
    return [
        (prompt.tolist(), response.tolist())
        for prompt, response in zip(table.ragged("prompt_ids"), table.ragged("response_ids"), strict=True)
    ]


def prepared(trainer: Any, row: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Return the row that TRL's trainer trains on."""
    args = MagicMock(dataset_num_proc=None, max_length=None)
    owner = MagicMock(calculate_KL=False, desirable_weight=1.0, undesirable_weight=1.0)
    (found,) = trainer._prepare_dataset(owner, Rows([row]), tokenizer, args, "train")
    return dict(found)


@pytest.mark.parametrize("kind", KINDS)
def test_token_ids_equal_trls_in_every_template(trl: Any, kind: str) -> None:
    """Templates without tools refuse messages with calls, in TRL too."""
    data, compared, refused = DataConfig(**NO_LIMIT), [], {}
    for path in sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja")):
        row, tokenizer = pair(path.stem.removesuffix("_training"), kind), byte_tokenizer(path.read_text())
        rows = read_rows(["x"], lambda _, row=row: [row])
        try:
            table, _ = pair_rows(rows, data, tokenizer)
        except ValueError as error:
            refused[path.stem] = str(error)
            continue
        theirs = prepared(trl.DPOTrainer, row, tokenizer)
        prompt = theirs["prompt_ids"]
        assert ids(table) == [(prompt, theirs["chosen_ids"]), (prompt, theirs["rejected_ids"])], path.stem
        assert table.ragged("response_mask").values.all(), "every token of a response is learnt"
        scored, _ = scored_pair_rows(rows, data, tokenizer)
        theirs = prepared(trl.RewardTrainer, row, tokenizer)
        texts = [[*prompt, *response[:-1]] for prompt, response in ids(scored)]
        assert texts == [theirs["chosen_ids"], theirs["rejected_ids"]], path.stem

        single = {"prompt": row["prompt"], "completion": row["chosen"], "label": True}
        single |= {key: row[key] for key in row.keys() & {"tools"}}
        unpaired, _ = unpaired_rows(read_rows(["x"], lambda _, row=single: [row]), data, tokenizer)
        theirs = prepared(trl.KTOTrainer, single, tokenizer)
        assert ids(unpaired) == [(theirs["prompt_ids"], theirs["completion_ids"])], path.stem
        compared.append(path.stem)
    assert {name.removesuffix("_training") for name in refused} == (REFUSES_TOOLS if kind == "tools" else set())
    assert all("chat template refused a prompt with roles" in message for message in refused.values())
    assert len(compared) >= 30


@pytest.mark.parametrize("is_prefix", [False, True])
def test_the_prompt_of_chats_without_one_equals_trls(trl: Any, is_prefix: bool) -> None:
    given = pair("qwen2_5", "plain")
    both = [*given["prompt"], *given["chosen"]]
    rejected = [*both, *given["rejected"]] if is_prefix else [*given["prompt"], *given["rejected"]]
    row = {"chosen": both, "rejected": rejected}
    tokenizer = byte_tokenizer((Path(trl.__file__).parent / "chat_templates/qwen2_5.jinja").read_text())
    table, _ = pair_rows(read_rows(["x"], lambda _: [row]), DataConfig(**NO_LIMIT), tokenizer)
    theirs = prepared(trl.DPOTrainer, row, tokenizer)
    prompt = theirs["prompt_ids"]
    assert ids(table) == [(prompt, theirs["chosen_ids"]), (prompt, theirs["rejected_ids"])]


def test_variables_of_a_row_reach_the_template_as_in_trl(trl: Any) -> None:
    template = (Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
    tokenizer, question = byte_tokenizer(template), [{"role": "user", "content": "1 + 2?"}]
    found = []
    for thinks in (True, False):
        row = {"prompt": question, "chat_template_kwargs": {"enable_thinking": thinks}}
        row |= {name: [{"role": "assistant", "content": name}] for name in ("chosen", "rejected")}
        table, _ = pair_rows(read_rows(["x"], lambda _, row=row: [row]), DataConfig(**NO_LIMIT), tokenizer)
        theirs = prepared(trl.DPOTrainer, row, tokenizer)
        assert ids(table) == [(theirs["prompt_ids"], theirs[f"{name}_ids"]) for name in ("chosen", "rejected")]
        found.append(theirs["prompt_ids"])
    assert found[0] != found[1]
