"""What begins and ends a tool call in each format that vLLM 0.32 reads.

Most of its parsers return a text that they cannot read as content, and some return the part of a call that was cut. A
turn with more beginnings than calls, or without the last end, has a malformed call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallMarks:
    """Marks of a format.

    Args:
        start: regular expression; each match begins at least one call.
        end: ends each call.
        opening: regular expression of what opens a list of calls.
    """

    start: str
    end: str
    opening: str = ""

    def problem(self, text: str, num_calls: int) -> str:
        """Return what is wrong with the calls of a text in which ``num_calls`` were found; empty if nothing is."""
        starts = list(re.finditer(self.start, text))
        opening = re.search(self.opening, text) if self.opening else None
        begun = max(len(starts), 1 if opening else 0)
        if num_calls < begun:
            first = (starts[0] if starts else opening)[0].strip()  # type: ignore[index]
            return f"{begun} tool call(s) begin, the first with {first!r}, but only {num_calls} can be read."
        if starts and self.end not in text[starts[-1].end() :]:
            return f"the last tool call does not end with {self.end!r}."
        return ""


_TAG = CallMarks("<tool_call>", "</tool_call>")
_JSON = CallMarks(r'\A\s*(?:<\|python_tag\|>|\{\s*"(?:name|type|function)"\s*:)', "}")
_PYTHON = CallMarks(r"\A\s*(?:<\|python_start\|>\s*)?\[\s*\w+\(", "]")
_DEEPSEEK = CallMarks("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁begin｜>")
_HUNYUAN = CallMarks(r"<tool_call(?::[^\s>]+)?>", "</tool_call", r"<tool_calls(?::[^\s>]+)?>")
_ACTION = CallMarks(r"<\|START_ACTION\|>", "<|END_ACTION|>")

MARKS: dict[str, CallMarks] = {
    "apertus": CallMarks(r"<\|tools_prefix\|>", "<|tools_suffix|>"),
    "cohere_command3": _ACTION,
    "cohere_command4": _ACTION,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v31": _DEEPSEEK,
    "deepseek_v32": CallMarks("<｜DSML｜invoke name=", "</｜DSML｜invoke>", "<｜DSML｜function_calls>"),
    "deepseek_v4": CallMarks("<｜DSML｜invoke name=", "</｜DSML｜invoke>", "<｜DSML｜tool(?:_?calls)?>"),
    "deepseek_v41": CallMarks("<｜DSML｜ invoke name=", "</｜DSML｜ invoke>", "<｜DSML｜ calls>"),
    "dots": CallMarks("<dots_function_call>", "</dots_function_call>"),
    "ernie45": _TAG,
    "functiongemma": CallMarks("<start_function_call>", "<end_function_call>"),
    "gemma4": CallMarks(r"<\|tool_call>", "<tool_call|>"),
    "gigachat3": CallMarks(r"function call<\|role_sep\|>\n|<\|function_call\|>", "}"),
    "glm45": _TAG,
    "glm47": _TAG,
    "granite": CallMarks(r"<\|tool_call\|>|<tool_call>", "}"),
    "granite-20b-fc": CallMarks("<function_call>", "}"),
    "granite4": _TAG,
    "hermes": _TAG,
    "hunyuan_a13b": CallMarks("<tool_calls>", "</tool_calls>"),
    "hy_v3": _HUNYUAN,
    "hy_v4": _HUNYUAN,
    "inkling": CallMarks(r"<\|content_invoke_tool_(?:json|text)\|>", "<|end_message|>"),
    "internlm": CallMarks(r"<\|action_start\|>\s*<\|plugin\|>", "<|action_end|>"),
    "jamba": CallMarks("<tool_calls>", "</tool_calls>"),
    "k2_horizon": CallMarks(r"<ifm\|tool_call>", "</ifm|tool_call>", r"<ifm\|tool_calls>"),
    "kimi_k2": CallMarks(r"<\|tool_call_begin\|>", "<|tool_call_end|>", r"<\|tool_calls_section_begin\|>"),
    "kimi_k3": CallMarks(r"<\|open\|>\s*tools\s*<\|sep\|>", "<|close|>"),
    "lfm2": CallMarks(r"<\|tool_call_start\|>", "<|tool_call_end|>"),
    "ling3": _TAG,
    "llama3_json": _JSON,
    "llama4_json": _JSON,
    "llama4_pythonic": _PYTHON,
    "longcat": CallMarks("<longcat_tool_call>", "</longcat_tool_call>"),
    "mimo": _TAG,
    "minicpm5": CallMarks(r"<function\b", "</function>"),
    "minimax_m2": CallMarks("<invoke name=", "</invoke>", "<minimax:tool_call>"),
    "minimax_m3": CallMarks(r"<invoke name=", "</invoke>", r"\]<\]minimax\[>\[<tool_call>"),
    "mistral": CallMarks(r"\[TOOL_CALLS\]", "}"),
    "muse_glimmer": CallMarks(r"<atem:invoke\b", "</atem:invoke>", "<atem:function_calls>"),
    "olmo3": CallMarks("<function_calls>", "</function_calls>"),
    "phi4_mini_json": CallMarks(r"functools\s*\[", "]"),
    "plamo3": CallMarks(
        r"<\|plamo:begin_tool_request:plamo\|>",
        "<|plamo:end_tool_request:plamo|>",
        r"<\|plamo:begin_tool_requests:plamo\|>",
    ),
    "poolside_v1": _TAG,
    "pythonic": _PYTHON,
    "qwen3_coder": _TAG,
    "qwen3_json": _TAG,
    "qwen3_xml": _TAG,
    "seed_oss": CallMarks("<seed:tool_call>", "</seed:tool_call>"),
    "step3": CallMarks("<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_calls_begin｜>"),
    "step3p5": _TAG,
    "xlam": CallMarks(r'\[TOOL_CALLS\]|<tool_call>|\A\s*\[\s*\{\s*"name"\s*:', "}"),
}
# Not here: "openai" is read without vLLM (environments/harmony.py); "hf" has the marks of each tokenizer's own response
# template, and what it cannot read is content.
