"""Turns of many models, read by the parsers of this package and by vLLM's."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from functools import cache
from typing import Any

import pytest
from vllm.tool_parsers import ToolParserManager

from tests._tiers import slow_but
from tests.unit._template_tokenizers import byte_tokenizer
from tests.unit._turn_formats import CALLS, FORMATS, SAID, THOUGHT, TOOLS, WITHOUT_VLLM, Format
from verl_like.backends.turn_parsers import vllm_parsers
from verl_like.backends.vllm.call_marks import MARKS
from verl_like.backends.vllm.turn_parser import VllmParsers
from verl_like.environments.parser_choice import chosen_parser
from verl_like.environments.parsers import OtherParsers, TurnParser

QUICK = ("hermes", "gpt_oss", "qwen3_coder", "mistral", "deepseek_v3")
PLAIN = "It rains in São Paulo, and 2 < 3."


def no_others() -> OtherParsers:
    raise AssertionError("vLLM is not needed")


@cache
def parser_of(name: str) -> TurnParser:
    turn = FORMATS[name]
    tokenizer = byte_tokenizer("", marks=turn.marks)
    return chosen_parser(
        tokenizer,
        {},
        tool_parser=turn.tool_parser,
        reasoning_parser=turn.reasoning_parser,
        has_tools=True,
        others=no_others if name in WITHOUT_VLLM else lambda: vllm_parsers(tokenizer, {}),
    ).parser


def calls_of(message: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]


@pytest.mark.parametrize("name", FORMATS)
def test_reasoning_a_text_and_two_parallel_calls_are_read_in_every_format(name: str) -> None:
    turn = FORMATS[name]
    found = parser_of(name)(turn.text, TOOLS)
    assert found.problem == "" and calls_of(found.message) == CALLS
    assert found.message["reasoning_content"] == THOUGHT
    assert found.message["content"] == (SAID if turn.keeps_text else "")
    first, second = found.message["tool_calls"]
    assert first["id"] != second["id"] and parser_of(name)(turn.text, TOOLS) == found, "ids do not depend on chance"


@pytest.mark.parametrize("name", slow_but(QUICK, ((name, (name,)) for name in FORMATS)))
def test_a_turn_that_is_cut_has_no_call_with_other_arguments(name: str) -> None:
    """A cut inside a call is a problem, and a cut between two calls leaves the first."""
    turn, parser = FORMATS[name], parser_of(name)
    for end in range(len(turn.text)):
        found = parser(turn.text[:end], TOOLS)
        calls = calls_of(found.message)
        assert calls in ([], CALLS[:1], CALLS), turn.text[:end]
        assert not (calls and found.problem), turn.text[:end]


def broken(turn: Format) -> list[str]:
    """Return the turn with its second call damaged, and with both."""
    at = turn.text.index(turn.second) + len(turn.second)
    return [turn.text[: at + 2], turn.text[: turn.text.index(turn.second)][:-20]]


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_breaks_off_is_a_problem_that_says_so(name: str) -> None:
    for text in broken(FORMATS[name]):
        found = parser_of(name)(text, TOOLS)
        assert "call" in found.problem and "tool_calls" not in found.message, text


@pytest.mark.parametrize("name", FORMATS)
def test_a_text_without_calls_has_no_problem(name: str) -> None:
    turn = FORMATS[name]
    text = turn.text[: turn.text.index(THOUGHT)] + turn.text[turn.text.index(THOUGHT) :].partition(SAID)[0] + PLAIN
    if not turn.keeps_text:
        text = turn.text.partition("</think>")[0] + "</think>" + PLAIN
    found = parser_of(name)(text, TOOLS)
    assert (found.problem, found.message["content"], found.message["reasoning_content"]) == ("", PLAIN, THOUGHT)


HOSTILE = [
    "",
    "\0",
    "\ud800",
    "<think>",
    "</think>" * 50,
    "[" * 3000,
    "{" * 3000,
    '{"name":' * 500,
    "<tool_call>" * 200,
    "[f(" * 100,
    "<tool_call>" + "[" * 5000 + "</tool_call>",
]


@pytest.mark.parametrize("name", slow_but(QUICK, ((name, (name,)) for name in FORMATS)))
def test_hostile_texts_raise_nothing_and_make_no_call(name: str) -> None:
    parser, pick = parser_of(name), random.Random(name)
    pieces = [*FORMATS[name].text.split(), *FORMATS[name].marks, "{", "}", '"', "\\", "\n", "]"]
    for text in [*HOSTILE, *(" ".join(pick.choices(pieces, k=30)) for _ in range(50))]:
        found = parser(text, TOOLS)
        json.dumps(found.message)
        assert found.message["role"] == "assistant" and isinstance(found.message["content"], str)
        assert all(isinstance(arguments, dict) for _, arguments in calls_of(found.message))
    assert parser(FORMATS[name].text, TOOLS).problem == "", "what a parser has read changes nothing for the next turn"


class Printed(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_what_vllm_logs_of_a_malformed_call_is_in_the_message_to_the_model_and_not_in_the_log() -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1,, }}\n</tool_call>'
    parser, printed = parser_of("qwen3_json"), Printed()
    loggers = [logging.getLogger(name) for name in ("", "vllm")]  # pytest's caplog would reopen what is closed
    for logger in loggers:
        logger.addHandler(printed)
    try:
        found = parser(text, TOOLS)
    finally:
        for logger in loggers:
            logger.removeHandler(printed)
    assert found.problem.startswith("1 tool call(s) begin, the first with '<tool_call>', but only 0 can be read.")
    assert "JSONDecodeError" in found.problem and not printed.texts


def test_a_call_whose_arguments_are_no_object_is_a_problem() -> None:
    found = parser_of("gpt_oss")("<|channel|>commentary to=functions.add json<|message|>[1, 2]<|call|>", TOOLS)
    assert found.problem == '"arguments" of the call of add must be a JSON object.'
    found = parser_of("llama3_json")('{"name": "add", "parameters": [1, 2]}', TOOLS)
    assert found.problem == '"arguments" of the call of add must be a JSON object.'


def test_a_name_that_no_tool_can_have_is_a_problem() -> None:
    """The older format of Mistral, read by the parser of the newer one."""
    found = parser_of("mistral")('[TOOL_CALLS][{"name": "add", "arguments": {"a": 1, "b": 2}}]', TOOLS)
    assert found.problem == "the name of a tool call is '['."


def test_an_id_that_the_model_wrote_is_kept() -> None:
    found = parser_of("kimi_k2")(FORMATS["kimi_k2"].text, TOOLS)
    assert [call["id"] for call in found.message["tool_calls"]] == ["functions.get_weather:0", "functions.add:1"]
    found = parser_of("mistral")(FORMATS["mistral"].text, TOOLS)
    assert [call["id"] for call in found.message["tool_calls"]] == ["call00000", "call00001"]


def test_types_of_arguments_come_from_the_tools_of_the_episode() -> None:
    parser, text = parser_of("qwen3_coder"), FORMATS["qwen3_coder"].text
    as_text = json.loads(json.dumps(TOOLS).replace("number", "string"))
    assert calls_of(parser(text, as_text).message)[1] == ("add", {"a": "1.5", "b": "2"})
    assert calls_of(parser(text, TOOLS).message) == CALLS


def test_reasoning_about_calls_is_no_malformed_call() -> None:
    text = FORMATS["qwen3_coder"].text.replace(THOUGHT, "Should I write <tool_call> or <tool_call>?")
    found = parser_of("qwen3_coder")(text, TOOLS)
    assert found.problem == "" and calls_of(found.message) == CALLS
    text = FORMATS["qwen3_xml"].text.replace(THOUGHT, "c")  # stands in the calls too
    assert "call" in parser_of("qwen3_xml")(text[:-20], TOOLS).problem


@pytest.mark.parametrize("name", ["qwen3_coder", "minimax_m2", "gemma4", "glm45"])
def test_a_call_with_20_kb_of_code_is_read_at_once(name: str) -> None:
    code = "if a > b:\n    x = [y for y in z if y < 3 and y >= 1]\n" * 400
    text, start = FORMATS[name].text.replace("São Paulo", code), time.process_time()
    found = parser_of(name)(text, TOOLS)
    assert time.process_time() - start < 1.0, "vLLM takes 8 s if it prepares each part for a client that streams"
    assert calls_of(found.message)[0][1]["city"].strip() == code.strip()


def test_one_parser_serves_several_threads() -> None:
    parser, text, wrong = parser_of("qwen3_coder"), FORMATS["qwen3_coder"].text, []

    def work() -> None:
        wrong.extend(1 for _ in range(50) if calls_of(parser(text, TOOLS).message) != CALLS)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_every_parser_of_vllm_has_its_marks() -> None:
    assert set(ToolParserManager.list_registered()) - set(MARKS) == {"openai", "hf"}


def test_an_unknown_name_and_a_tokenizer_that_does_not_fit_are_refused() -> None:
    others = VllmParsers(byte_tokenizer(""), {})
    with pytest.raises(ValueError, match=r"vLLM has no tool parser hremes. It has apertus, .*, xlam"):
        others.parser(tool_parser="hremes", reasoning_parser="")
    with pytest.raises(ValueError, match=r"vLLM has no reasoning parser qwen. It has .*qwen3"):
        others.parser(tool_parser="", reasoning_parser="qwen")
    with pytest.raises(ValueError, match=r"llama3_json cannot be used with this tokenizer: .*<\|python_tag\|>"):
        others.parser(tool_parser="llama3_json", reasoning_parser="")
