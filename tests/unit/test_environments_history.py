"""How a context continues after a turn, for the chat templates that peers ship and for the Qwen3 tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from verl_like.environments.history import Appended, LastRendering, Rewritten, common_length, continuation, error_role
from verl_like.environments.template_report import TemplateReport, template_report
from verl_like.environments.tree import Message

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / ".peers/trl/chat_templates"
QWEN3 = ROOT.parent / "shared/data/tokenizers/qwen3"
NUM_TURNS = 5
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
# Texts of the tokens at which models stop.
ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<end_of_turn>",
    "<turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
    "<|eot|>",
    "<end_of_utterance>",
    "</s>",
)
REFUSES_TOOLS = {"cohere", "cohere2", "deepseekv3", "gemma", "gemma3", "idefics3", "llava_next", "smolvlm"}
# Templates that drop the reasoning of earlier turns, or change their last mark, once a user message follows.
REWRITES_AT_A_USER = {
    "diffusion_gemma",
    "gemma4_v5",
    "glm4moe",
    "gptoss",
    "lfm2_2_5_v2",
    "lfm2_2_5_vl",
    "nemotron_3_5_lightning",
    "nemotron_3_nano",
    "nemotron_3_super",
    "nemotron_3_ultra",
    "qwen3",
    "qwen3_5_nothink",
    "qwen3_5_think",
    "qwen3_6",
}
# Their generation prompt is no prefix of the turn as rendered later.
OTHER_GENERATION_PROMPT = {"deepseek_r1_distill", "deepseekv3", "qwen3_5_nothink"}


@dataclass(frozen=True)
class JinjaTemplate:
    source: str
    tools: list[dict[str, Any]] | None

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        try:
            [text], _ = render_jinja_template(
                [list(messages)],
                tools=self.tools,
                chat_template=self.source,
                add_generation_prompt=add_generation_prompt,
                bos_token="<s>",
                eos_token="</s>",
                pad_token="<pad>",
            )
        except Exception as error:  # templates raise anything
            raise ValueError(str(error)) from error
        return str(text)


@dataclass(frozen=True)
class Turns:
    """The turns of an episode of one kind: the policy's, and what follows it."""

    uses_tools: bool
    reasons: bool
    has_parts: bool

    def content(self, text: str) -> Any:
        return [{"type": "text", "text": text}] if self.has_parts else text

    def first(self) -> list[Message]:
        return [{"role": "user", "content": self.content("What is 1 + 2?")}]

    def policy(self, number: int) -> Message:
        turn: dict[str, Any] = {"role": "assistant", "content": self.content(f"It is {number}.")}
        if self.uses_tools:
            call = {"name": "add", "arguments": {"a": number, "b": 2}}
            turn |= {"content": "", "tool_calls": [{"type": "function", "id": f"call{number:05d}", "function": call}]}
        return turn | ({"reasoning_content": "Let me think."} if self.reasons else {})

    def following(self, number: int) -> list[Message]:
        if self.uses_tools:
            return [{"role": "tool", "name": "add", "tool_call_id": f"call{number:05d}", "content": str(number + 2)}]
        return [{"role": "user", "content": self.content("And then?")}]


def sampled_text(template: JinjaTemplate, history: list[Message], name: str, turns: Turns) -> tuple[str, str]:
    """Return a policy's text for the last turn, as the template renders it, and the token that ends it."""
    prompt = template(history[:-1], add_generation_prompt=True)
    whole = template(history, add_generation_prompt=False)
    shared = next((n for n, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))
    text = whole[shared:]
    if name == "glm4moe":  # this model stops at the mark of the next speaker
        end = "<|observation|>" if turns.uses_tools else "<|user|>"
        return text + end, end
    found = [end for end in ENDS if end in text]
    if not found:
        return text, ""
    end = max(found, key=text.rindex)
    if end == "</s>" and len(found) > 1:  # phi3 writes it after a finished chat only
        end = max((each for each in found if each != end), key=text.rindex)
    return text[: text.rindex(end) + len(end)], end


def episode(name: str, turns: Turns) -> tuple[list[type], list[bool]]:
    """Return the kind of each continuation, and whether the context is then what the template shows."""
    source = (TEMPLATES / f"{name}.jinja").read_text()
    template = JinjaTemplate(source, [ADD] if turns.uses_tools else None)
    history = turns.first()
    context, kinds, equal = template(history, add_generation_prompt=True), [], []
    for number in range(NUM_TURNS):
        history.append(turns.policy(number))
        new = turns.following(number)
        sampled, end = sampled_text(template, history, name, turns)
        found = continuation(template, history, new, sampled=sampled, end=end)
        spaced = continuation(template, history, new, sampled=f" {sampled}", end=end)
        context = context + sampled + found.text if isinstance(found, Appended) else found.text
        history += new
        kinds.append(type(found))
        equal.append(context == template(history, add_generation_prompt=True))
        if end and turns.reasons == turns.uses_tools:
            assert spaced == found, "what is appended does not depend on the form in which the turn was sampled"
    return kinds, equal


def names() -> list[str]:
    return sorted(path.stem for path in TEMPLATES.glob("*.jinja") if not path.stem.endswith("_training"))


needs_peers = pytest.mark.skipif(not TEMPLATES.is_dir(), reason="`make peers` installs the chat templates")


def has_parts(name: str) -> bool:
    return name in ("idefics3", "llava_next", "smolvlm")


@needs_peers
def test_tool_turns_append_in_every_template_that_takes_them() -> None:
    found = {}
    for name in names():
        turns = Turns(uses_tools=True, reasons=True, has_parts=has_parts(name))
        try:
            found[name] = episode(name, turns)
        except ValueError:
            continue
    assert set(names()) - set(found) == REFUSES_TOOLS and len(names()) == 41
    for name, (kinds, equal) in found.items():
        assert set(kinds) == {Appended}, name
        assert all(equal) == (name not in OTHER_GENERATION_PROMPT), name


@needs_peers
def test_a_user_message_after_reasoning_rewrites_the_history_of_14_templates() -> None:
    rewriting = set()
    for name in names():
        kinds, equal = episode(name, Turns(uses_tools=False, reasons=True, has_parts=has_parts(name)))
        assert len(set(kinds)) == 1, name
        assert all(equal) == (name not in OTHER_GENERATION_PROMPT - REWRITES_AT_A_USER), name
        if Rewritten in kinds:
            rewriting.add(name)
    assert rewriting == REWRITES_AT_A_USER


@needs_peers
def test_the_report_of_a_template_says_what_the_walk_has_found() -> None:
    for name in names():
        if has_parts(name):
            continue
        source = (TEMPLATES / f"{name}.jinja").read_text()
        found = template_report(JinjaTemplate(source, None), JinjaTemplate(source, [ADD]))
        assert found.users_after_reasoning == ("forks" if name in REWRITES_AT_A_USER else "appends"), name
        assert found.tools == ("refuses" if name in REFUSES_TOOLS else "appends"), name


def test_a_report_counts_the_rows_of_an_episode() -> None:
    found = TemplateReport(tools="appends", users="forks", users_after_reasoning="refuses")
    assert found.rows(5) == {"tools": 1, "users": 5}
    assert found.lines(5) == [
        "results of tools: the template keeps earlier turns: one row per episode",
        "messages of the user: the template rewrites earlier turns: up to 5 rows per episode",
        "messages of the user after reasoning: the template refuses such a chat",
    ]


NO_TOOL_AFTER_TEXT = {"diffusion_gemma", "gemma4", "gemma4_v3", "gemma4_v4", "gemma4_v5", "gptoss", "phi3", "phi3_5"}


@needs_peers
def test_the_error_of_a_malformed_call_is_shown_by_every_template_that_takes_tools() -> None:
    for name in set(names()) - REFUSES_TOOLS:
        template = JinjaTemplate((TEMPLATES / f"{name}.jinja").read_text(), [ADD])
        history: list[Message] = [{"role": "user", "content": "Add."}, {"role": "assistant", "content": "<call"}]
        role = error_role(template, history)
        assert role == ("user" if name in NO_TOOL_AFTER_TEXT else "tool"), name
        shown = template([*history, {"role": role, "content": "Error of it"}], add_generation_prompt=True)
        assert "Error of it" in shown, name


def test_a_turn_renders_the_chat_once_and_keeps_the_text_for_the_next() -> None:
    rendered: list[int] = []

    def plain(messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        rendered.append(len(messages))
        text = "".join(f"<{each['role']}>{each['content']}$" for each in messages)
        return text + ("<assistant>" if add_generation_prompt else "")

    template = LastRendering(plain)
    chat: list[Message] = [{"role": "user", "content": "a"}]
    context = template(chat, add_generation_prompt=True)
    for number in range(3):
        chat, new = [*chat, {"role": "assistant", "content": str(number)}], [{"role": "user", "content": "b"}]
        found = continuation(template, chat, new, sampled=f"{number}$", end="$")
        assert isinstance(found, Appended)
        chat, context = [*chat, *new], f"{context}{number}${found.text}"
    assert rendered == [1, 3, 5, 7] and context == plain(chat, add_generation_prompt=True)
    other = [*chat[:-1], {"role": "user", "content": "c"}]
    assert template(other, add_generation_prompt=True).endswith("<user>c$<assistant>"), "another chat of this length"


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [
        ("", "a", 0),
        ("ab", "ab", 2),
        ("abc", "abd", 2),
        ("b", "a", 0),
        ("aaaa", "aa", 2),
        ("ab" * 40, "ab" * 33 + "c", 66),
    ],
)
def test_the_common_length_is_that_of_the_longest_common_start(first: str, second: str, length: int) -> None:
    assert common_length(first, second) == length


EMPTY_THOUGHTS_OF_THE_LAST_TURN = """\
{%- for message in messages -%}
<{{ message.role }}>
{%- if message.role == "assistant" and (loop.last or message.reasoning_content) -%}
<think>{{ message.reasoning_content }}</think>
{%- endif -%}
{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<end>
{%- endfor -%}
{%- if add_generation_prompt %}<assistant>{% endif %}"""


@pytest.mark.parametrize(
    ("sampled", "appends"), [('{"name":  "f"}<end>', True), ('<think>so</think>{"name":"f"}<end>', False)]
)
def test_an_empty_block_of_reasoning_in_the_last_turn_does_not_rewrite_the_history(sampled: str, appends: bool) -> None:
    """Qwen3's template writes such a block, and only into the last turn; reasoning that it leaves out is a rewrite."""
    source = EMPTY_THOUGHTS_OF_THE_LAST_TURN
    if not appends:
        source = source.replace(" or message.reasoning_content", "")
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f"}}]}
    turn = call | ({} if appends else {"reasoning_content": "so"})
    history = [{"role": "user", "content": "go"}, turn]
    new = [{"role": "tool", "content": "2"}]
    found = continuation(JinjaTemplate(source, None), history, new, sampled=sampled, end="<end>")
    if appends:
        assert found == Appended("<tool>2<end><assistant>")
    else:
        assert isinstance(found, Rewritten)


def test_history_append_keeps_a_turn_of_which_the_template_leaves_one_character() -> None:
    source = """\
{%- for message in messages -%}
<{{ message.role[0] }}>{{ message.content if message.role == "user" or loop.last else message.content[:1] }}<end>
{%- endfor -%}
{%- if add_generation_prompt %}<a>{% endif %}"""
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "three words here"}]
    new = [{"role": "user", "content": "on"}]
    found = continuation(
        JinjaTemplate(source, None), history, new, sampled="three words here<end>", end="<end>", mode="append"
    )
    assert found == Appended("<u>on<end><a>")
