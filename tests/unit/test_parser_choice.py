"""The parsers that are chosen for a chat template, by name and automatically."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pytest
from transformers import AutoTokenizer

from tests._tiers import slow_but
from tests.unit._template_tokenizers import byte_tokenizer
from tests.unit._turn_formats import CALLS, FORMATS, TOOLS
from tests.unit.test_environments_history import QWEN3, TEMPLATES, names, needs_peers
from verl_like.backends.turn_parsers import vllm_parsers
from verl_like.environments.episode import ParsedTurn
from verl_like.environments.harmony import harmony
from verl_like.environments.parser_choice import ChosenParser, Others, chosen_parser
from verl_like.environments.parsers import OtherParsers, Tools, TurnParser, hermes, message, reasoning_only, tool_call

PLAIN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
NO_CALLS = PLAIN + PROMPT
REFUSES = "{% for m in messages %}{{ m.role + m.tool_calls if m.tool_calls else m.content }}{% endfor %}" + PROMPT
BRACKETS = PLAIN.replace(
    "{{ m.content }}",
    "{{ m.content }}{% for c in m.tool_calls or [] %}[[{{ c.function.name }} {{ c.function.arguments | tojson }}]]"
    "{% endfor %}",
) + PROMPT  # fmt: skip


def no_others() -> OtherParsers:
    raise AssertionError("vLLM is not needed")


def missing() -> OtherParsers:
    raise ValueError("vLLM, which has the other parsers, is not installed.")


def chosen(
    template: str,
    *,
    has_tools: bool = True,
    tool_parser: str = "auto",
    reasoning_parser: str = "auto",
    others: Others = no_others,
) -> ChosenParser:
    return chosen_parser(
        byte_tokenizer(template),
        {},
        tool_parser=tool_parser,
        reasoning_parser=reasoning_parser,
        has_tools=has_tools,
        others=others,
    )


def brackets(text: str, tools: Tools = ()) -> ParsedTurn:
    """Read calls of ``BRACKETS``."""
    content, *calls = text.split("[[")
    found = [each.removesuffix("]]").partition(" ") for each in calls]
    return ParsedTurn(message=message(content, "", [tool_call(n, f[0], json.loads(f[2])) for n, f in enumerate(found)]))


def shouting(text: str, tools: Tools = ()) -> ParsedTurn:
    """Read the same, but change what stands before a call."""
    found = brackets(text).message
    return ParsedTurn(message={**found, "content": found["content"].upper() if "tool_calls" in found else text})


def quoting(text: str, tools: Tools = ()) -> ParsedTurn:
    """Read the same, but drop what stands before a call."""
    found = brackets(text).message
    return ParsedTurn(message={**found, "content": "" if "tool_calls" in found else text})


@dataclass(frozen=True)
class Given:
    """Parsers of another package."""

    parsers: Mapping[str, TurnParser]
    reasoning_parsers: Collection[str] = ()

    @property
    def tool_parsers(self) -> Collection[str]:
        return self.parsers.keys()

    def parser(self, *, tool_parser: str, reasoning_parser: str) -> TurnParser:
        return self.parsers[tool_parser]


@pytest.mark.skipif(not QWEN3.is_dir(), reason="the tokenizer of Qwen3 is not there")
def test_the_template_of_qwen3_needs_nothing_of_vllm() -> None:
    tokenizer = AutoTokenizer.from_pretrained(QWEN3)
    found = chosen_parser(tokenizer, {}, tool_parser="auto", reasoning_parser="auto", has_tools=True, others=no_others)
    assert found == ChosenParser(parser=hermes, tool_parser="hermes", reasoning_parser="think")


@pytest.mark.parametrize("template", [NO_CALLS, REFUSES, BRACKETS])
def test_without_tools_no_tool_parser_is_needed(template: str) -> None:
    found = chosen(template, has_tools=False)
    assert found == ChosenParser(parser=reasoning_only, tool_parser="", reasoning_parser="think")
    text = FORMATS["hermes"].text
    assert "tool_calls" not in found.parser(text, TOOLS).message and found.parser(text, TOOLS).problem == ""


def test_names_are_taken_as_they_are() -> None:
    assert chosen(NO_CALLS, tool_parser="hermes").parser is hermes
    assert chosen(NO_CALLS, tool_parser="openai").parser is harmony
    found = chosen(NO_CALLS, tool_parser="brackets", others=lambda: Given({"brackets": brackets}))
    turn = found.parser('<think>So.</think>Now[[f {"x": 1}]]', TOOLS)
    assert turn.message["reasoning_content"] == "So." and turn.message["content"] == "Now"
    assert turn.message["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}


def test_the_only_parser_that_reads_the_calls_back_is_chosen() -> None:
    def deaf(text: str, tools: Tools = ()) -> ParsedTurn:
        return ParsedTurn(message=message(text, "", []))

    found = chosen(BRACKETS, others=lambda: Given({"deaf": deaf, "brackets": brackets}))
    assert (found.tool_parser, found.reasoning_parser) == ("brackets", "think")


def test_a_parser_that_reads_everything_back_is_preferred_to_those_that_change_something() -> None:
    found = chosen(BRACKETS, others=lambda: Given({"quoting": quoting, "shouting": shouting, "brackets": brackets}))
    assert found.tool_parser == "brackets"


def test_parsers_that_read_the_same_count_as_one() -> None:
    assert chosen(BRACKETS, others=lambda: Given({"a": quoting, "b": quoting})).tool_parser == "a"


def test_several_parsers_that_differ_are_refused_by_name() -> None:
    text = (
        r"environment.tool_parser is auto, but for the text '\[\[get_weather .*\]\]', as the chat template writes it, "
        r"quoting, shouting read it, but differ in what they read. Set environment.tool_parser to "
    )
    with pytest.raises(ValueError, match=text):
        chosen(BRACKETS, others=lambda: Given({"quoting": quoting, "shouting": shouting}))


def test_a_format_that_no_parser_reads_is_refused_with_its_text() -> None:
    with pytest.raises(ValueError, match=r"for the text '\[\[get_weather .*, no parser reads it back. Set environment"):
        chosen(BRACKETS, others=lambda: Given({}))


def test_a_template_that_leaves_out_or_refuses_calls_is_refused() -> None:
    with pytest.raises(ValueError, match=r"leaves tool calls out .* Set environment.tool_parser=hermes if"):
        chosen(NO_CALLS)
    with pytest.raises(ValueError, match=r"the chat template refused .* Use a model whose chat template accepts"):
        chosen(REFUSES)


def test_without_vllm_its_parsers_are_refused_with_those_that_remain() -> None:
    text = (
        r"environment.tool_parser=glm45 with environment.reasoning_parser=think cannot be used: vLLM, which has the "
        r"other parsers, is not installed. Without vLLM, the tool parsers hermes and openai and the reasoning parsers"
    )
    with pytest.raises(ValueError, match=text):
        chosen(NO_CALLS, tool_parser="glm45", others=missing)
    with pytest.raises(ValueError, match=r"writes turns as '\[\[get_weather .* is not installed. Install vLLM, or"):
        chosen(BRACKETS, others=missing)


def test_vllm_that_is_not_installed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ValueError, match=r"\AvLLM, which has the other parsers, is not installed.\Z"):
        vllm_parsers(byte_tokenizer(PLAIN), {})


def test_half_of_the_format_of_gpt_oss_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one parser reads the whole format of gpt-oss. Set them to openai and"):
        chosen(NO_CALLS, tool_parser="openai", reasoning_parser="think")
    with pytest.raises(ValueError, match=r"one parser reads the whole format of gpt-oss. Set them to openai and"):
        chosen(NO_CALLS, tool_parser="hermes", reasoning_parser="openai_gptoss")


# Tool and reasoning parser for each chat template of the trl 1.16 wheel; all others leave calls out or refuse them.
TABLE = {
    "diffusion_gemma": ("gemma4", "gemma4"),
    "gemma4": ("gemma4", "gemma4"),
    "gemma4_v2": ("gemma4", "gemma4"),
    "gemma4_v3": ("gemma4", "gemma4"),
    "gemma4_v4": ("gemma4", "gemma4"),
    "gemma4_v5": ("gemma4", "gemma4"),
    "glm4moe": ("glm45", "think"),
    "gptoss": ("openai", "openai_gptoss"),
    "lfm2_2_5": ("lfm2", "think"),
    "lfm2_2_5_v2": ("lfm2", "think"),
    "lfm2_2_5_vl": ("lfm2", "think"),
    "lfm2_v2": ("lfm2", "think"),
    "llama3_1": ("llama3_json", "think"),
    "llama3_2": ("llama3_json", "think"),
    "muse_glimmer": ("muse_glimmer", "muse_glimmer"),
    "nemotron_3_5_lightning": ("qwen3_coder", "think"),
    "nemotron_3_nano": ("qwen3_coder", "think"),
    "nemotron_3_super": ("qwen3_coder", "think"),
    "nemotron_3_ultra": ("qwen3_coder", "think"),
    "qwen2_5": ("hermes", "think"),
    "qwen3": ("hermes", "think"),
    "qwen3_5_nothink": ("qwen3_coder", "think"),
    "qwen3_5_think": ("qwen3_coder", "think"),
    "qwen3_6": ("qwen3_coder", "think"),
    "qwen3_8": ("qwen3_coder", "think"),
    "qwen3_instruct_2507": ("hermes", "think"),
    "qwen3_vl": ("hermes", "think"),
}
REFUSED = {"deepseekv3", "idefics3", "llava_next", "smolvlm"}
REASONING_ALONE = {
    "diffusion_gemma": "gemma4",
    "gemma4_v5": "gemma4",
    "gptoss": "openai_gptoss",
    "muse_glimmer": "muse_glimmer",
}


LEAVES_OUT = {
    "cohere",
    "cohere2",
    "deepseek_r1_distill",
    "gemma",
    "gemma3",
    "lfm2",
    "llama3",
    "phi3",
    "phi3_5",
    "qwen2_5_vl",
}
QUICK = ("qwen3", "gptoss", "glm4moe", "llama3_1", "deepseekv3", "lfm2")
ALL = sorted([*TABLE, *REFUSED, *LEAVES_OUT])


@needs_peers
@pytest.mark.parametrize("name", slow_but(QUICK, ((name, (name,)) for name in ALL)))
def test_each_template_of_the_trl_wheel_gets_the_parsers_of_its_model(name: str) -> None:
    assert names() == ALL and len(ALL) == 41
    # A token of Llama 3.2 that its template does not contain, and its parser needs.
    marks = ["<|python_tag|>"] if name == "llama3_2" else []
    tokenizer = byte_tokenizer((TEMPLATES / f"{name}.jinja").read_text(), marks=marks)

    def parsers(has_tools: bool) -> ChosenParser:
        return chosen_parser(
            tokenizer,
            {},
            tool_parser="auto",
            reasoning_parser="auto",
            has_tools=has_tools,
            others=lambda: vllm_parsers(tokenizer, {}),
        )

    assert parsers(False).reasoning_parser == REASONING_ALONE.get(name, "think")
    if name in TABLE:
        found = parsers(True)
        assert (found.tool_parser, found.reasoning_parser) == TABLE[name]
    else:
        said = "the chat template refused" if name in REFUSED else "leaves tool calls out"
        with pytest.raises(ValueError, match=said):
            parsers(True)


def test_the_parser_of_gpt_oss_gives_the_reasoning_under_the_name_of_its_template() -> None:
    found = harmony("<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final<|message|>Yes.").message
    assert found == {"role": "assistant", "content": "Yes.", "reasoning_content": "So.", "thinking": "So."}
    with_calls = harmony(FORMATS["gpt_oss"].text).message
    assert "thinking" not in with_calls and len(with_calls["tool_calls"]) == len(CALLS)
