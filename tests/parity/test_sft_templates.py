"""Conversations in every chat template of the trl wheel: their tokens and masks, compared with TRL 1.16's."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from tests.unit._template_tokenizers import byte_tokenizer
from tests.unit.test_environments_history import ADD, TEMPLATES, Turns, has_parts, names, needs_peers
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.training.sft_rows import sft_rows

KINDS = {
    "plain": {"uses_tools": False, "reasons": False},
    "reasons": {"uses_tools": False, "reasons": True},
    "tools": {"uses_tools": True, "reasons": False},
}
ROLES, PREFIX, NO_END = "refused messages with roles", "generation prompt ends with", "expected a special token"
REFUSED = {
    "plain": {
        **dict.fromkeys(["deepseek_r1_distill", "deepseekv3"], PREFIX),
        **dict.fromkeys([f"nemotron_3_{size}" for size in ("5_lightning", "nano", "super", "ultra")], PREFIX),
        "glm4moe": NO_END,
    },
    "reasons": {**dict.fromkeys(["deepseek_r1_distill", "deepseekv3", "qwen3_5_nothink"], PREFIX), "glm4moe": NO_END},
    "tools": {
        **dict.fromkeys(["cohere", "cohere2", "deepseekv3", "gemma", "gemma3"], ROLES),
        **dict.fromkeys(["idefics3", "llava_next", "smolvlm"], ROLES),
        **dict.fromkeys([f"nemotron_3_{size}" for size in ("5_lightning", "nano", "super", "ultra")], PREFIX),
        "deepseek_r1_distill": PREFIX,
        "glm4moe": NO_END,
    },
}
# Templates that change earlier turns once a message of the user follows: each turn is a row.
SPLIT = {
    "plain": {"gptoss"},
    "reasons": {
        *("diffusion_gemma", "gemma4_v5", "gptoss", "lfm2_2_5_v2", "lfm2_2_5_vl", "nemotron_3_5_lightning"),
        *("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "qwen3", "qwen3_5_think", "qwen3_6"),
    },
    "tools": set[str](),
}


def conversation(name: str, kind: str) -> list[dict[str, Any]]:
    turns = Turns(**KINDS[kind], has_parts=has_parts(name))
    chat = [dict(each) for each in turns.first()]
    for number in range(3):
        chat += [dict(each) for each in (turns.policy(number), *turns.following(number))]
    last = Turns(uses_tools=False, reasons=KINDS[kind]["reasons"], has_parts=has_parts(name)).policy(9)
    return [*chat, dict(last)]


@needs_peers
@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_trls_without_what_a_model_does_not_generate(kind: str) -> None:
    """TRL also learns the end of the generation prompt in some templates, and the line break after an end token."""
    utils = pytest.importorskip("trl.chat_template_utils")
    refused, split, compared = {}, set(), set()
    for name in names():
        tokenizer = byte_tokenizer((TEMPLATES / f"{name}.jinja").read_text())
        chat, tools = conversation(name, kind), [ADD] if kind == "tools" else []
        rows = read_rows(["x"], lambda _, row={"messages": chat, "tools": tools}: [row])
        data = DataConfig(max_prompt_length=10_000, max_response_length=10_000)
        try:
            table, _ = sft_rows(rows, data, tokenizer)
        except ValueError as error:
            refused[name] = next(reason for reason in (ROLES, PREFIX, NO_END) if reason in str(error))
            continue
        if len(table) > 1:
            assert len(table) == sum(message["role"] == "assistant" for message in chat)
            split.add(name)
            continue
        try:
            template = utils.get_training_chat_template(tokenizer)
        except ValueError:  # TRL has none for this one
            continue
        theirs = tokenizer.apply_chat_template(
            chat, tools=tools, chat_template=template, return_assistant_tokens_mask=True, return_dict=True
        )
        prompt, response = table.ragged("prompt_ids")[0], table.ragged("response_ids")[0]
        ids = [*prompt.tolist(), *response.tolist()]
        mask = [False] * len(prompt) + table.ragged("response_mask")[0].tolist()
        assert ids == theirs["input_ids"][: len(ids)], name
        after = tokenizer.decode(theirs["input_ids"][len(ids) :]).strip()
        assert after == ("</s>" if name in ("phi3", "phi3_5") else ""), name  # these write it after a finished chat
        pairs = list(zip(ids, mask, map(bool, theirs["assistant_masks"]), strict=False))
        assert all(is_theirs for _, is_ours, is_theirs in pairs if is_ours) or name == "diffusion_gemma", name
        begins = tokenizer.apply_chat_template(chat[:1], tools=tools, add_generation_prompt=True, tokenize=False)
        for is_more, run in groupby(pairs, key=lambda pair: pair[2] and not pair[1]):
            text = tokenizer.decode([token for token, *_ in run]) if is_more else ""
            assert not text.strip() or begins.endswith(text), (name, text)
        compared.add(name)
    assert (refused, split) == (REFUSED[kind], SPLIT[kind])
    assert len(compared) >= 15
