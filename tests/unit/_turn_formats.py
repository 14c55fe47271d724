"""Turns in the formats of many models, written by hand: reasoning, a text, then two calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
}
TOOLS = [WEATHER, ADD]
THOUGHT, SAID = "Let me see.", "I ask both."
CALLS = [("get_weather", {"city": "São Paulo", "days": 3}), ("add", {"a": 1.5, "b": 2})]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A turn of a model.

    Args:
        second: where the second call begins in the text; the text before it is a turn with one call.
        keeps_text: whether the parser returns what stands before the calls. The others drop it.
    """

    tool_parser: str
    reasoning_parser: str
    text: str
    second: str
    marks: tuple[str, ...] = ()
    keeps_text: bool = True


JSON = '{"city": "São Paulo", "days": 3}', '{"a": 1.5, "b": 2}'
HERMES = f"""<think>
Let me see.
</think>

I ask both.
<tool_call>
{{"name": "get_weather", "arguments": {JSON[0]}}}
</tool_call>
<tool_call>
{{"name": "add", "arguments": {JSON[1]}}}
</tool_call>"""
XML = """<think>
Let me see.
</think>

I ask both.

<tool_call>
<function=get_weather>
<parameter=city>
São Paulo
</parameter>
<parameter=days>
3
</parameter>
</function>
</tool_call>
<tool_call>
<function=add>
<parameter=a>
1.5
</parameter>
<parameter=b>
2
</parameter>
</function>
</tool_call>"""
GLM = """
<think>Let me see.</think>
I ask both.
<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>São Paulo</arg_value>
<arg_key>days</arg_key>
<arg_value>3</arg_value>
</tool_call>
<tool_call>add
<arg_key>a</arg_key>
<arg_value>1.5</arg_value>
<arg_key>b</arg_key>
<arg_value>2</arg_value>
</tool_call>"""
LLAMA = (
    f'<think>Let me see.</think>{{"name": "get_weather", "parameters": {JSON[0]}}}; '
    f'{{"name": "add", "parameters": {JSON[1]}}}'
)
MISTRAL = f"[THINK]Let me see.[/THINK]I ask both.[TOOL_CALLS]get_weather[ARGS]{JSON[0]}[TOOL_CALLS]add[ARGS]{JSON[1]}"
DEEPSEEK_V3 = f"""<think>
Let me see.
</think>

I ask both.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
```json
{JSON[0]}
```<｜tool▁call▁end｜>
<｜tool▁call▁begin｜>function<｜tool▁sep｜>add
```json
{JSON[1]}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"""
DEEPSEEK_V31 = (
    "Let me see.</think>I ask both.<｜tool▁calls▁begin｜>"
    f"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{JSON[0]}<｜tool▁call▁end｜>"
    f"<｜tool▁call▁begin｜>add<｜tool▁sep｜>{JSON[1]}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
GPT_OSS = (
    "<|channel|>analysis<|message|>Let me see.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>I ask both.<|end|>"
    f"<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{JSON[0]}<|call|>"
    f"<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{JSON[1]}<|call|>"
)
KIMI_K2 = (
    "<think>Let me see.</think>I ask both.<|tool_calls_section_begin|>"
    f"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{JSON[0]}<|tool_call_end|>"
    f"<|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{JSON[1]}<|tool_call_end|>"
    "<|tool_calls_section_end|>"
)
LFM2 = (
    "<think>Let me see.</think>I ask both."
    "<|tool_call_start|>[get_weather(city='São Paulo', days=3), add(a=1.5, b=2)]<|tool_call_end|>"
)
GEMMA4 = (
    "<|channel>thought\nLet me see.\n<channel|>I ask both."
    '<|tool_call>call:get_weather{city:<|"|>São Paulo<|"|>,days:3}<tool_call|>'
    "<|tool_call>call:add{a:1.5,b:2}<tool_call|>"
)
MINIMAX_M2 = """<think>
Let me see.
</think>

I ask both.
<minimax:tool_call>
<invoke name="get_weather">
<parameter name="city">São Paulo</parameter>
<parameter name="days">3</parameter>
</invoke>
<invoke name="add">
<parameter name="a">1.5</parameter>
<parameter name="b">2</parameter>
</invoke>
</minimax:tool_call>"""
PYTHON = "<think>Let me see.</think>[get_weather(city='São Paulo', days=3), add(a=1.5, b=2)]"
HUNYUAN = (
    "<think>Let me see.</think>I ask both.<tool_calls>"
    f'[{{"name": "get_weather", "arguments": {JSON[0]}}}, {{"name": "add", "arguments": {JSON[1]}}}]</tool_calls>'
)
_SEED = XML.replace("tool_call>", "seed:tool_call>").replace("think>", "seed:think>")
_DEEPSEEK = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
_SECOND_JSON, _SECOND_XML = '<tool_call>\n{"name": "add', "<tool_call>\n<function=add"
_THINK = ("<think>", "</think>", "<tool_call>", "</tool_call>")

# The first three are read without vLLM.
FORMATS = {
    "hermes": Format(tool_parser="hermes", reasoning_parser="think", text=HERMES, second=_SECOND_JSON),
    "hermes_without_mark": Format(
        tool_parser="hermes", reasoning_parser="think", text=HERMES.removeprefix("<think>\n"), second=_SECOND_JSON
    ),
    "gpt_oss": Format(
        tool_parser="openai",
        reasoning_parser="openai_gptoss",
        text=GPT_OSS,
        second="<|start|>assistant to=functions.add",
    ),
    "qwen3_json": Format(
        tool_parser="qwen3_json", reasoning_parser="think", text=HERMES, second=_SECOND_JSON, marks=_THINK
    ),
    "qwen3_json_qwen3": Format(
        tool_parser="qwen3_json", reasoning_parser="qwen3", text=HERMES, second=_SECOND_JSON, marks=_THINK
    ),
    "hermes_qwen3": Format(
        tool_parser="hermes", reasoning_parser="qwen3", text=HERMES, second=_SECOND_JSON, marks=_THINK
    ),
    "qwen3_coder": Format(
        tool_parser="qwen3_coder", reasoning_parser="think", text=XML, second=_SECOND_XML, marks=_THINK
    ),
    "qwen3_xml": Format(tool_parser="qwen3_xml", reasoning_parser="qwen3", text=XML, second=_SECOND_XML, marks=_THINK),
    "step3p5": Format(tool_parser="step3p5", reasoning_parser="step3p5", text=XML, second=_SECOND_XML, marks=_THINK),
    "seed_oss": Format(
        tool_parser="seed_oss",
        reasoning_parser="seed_oss",
        text=_SEED,
        second="<seed:tool_call>\n<function=add",
        marks=("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    ),
    "glm45": Format(tool_parser="glm45", reasoning_parser="think", text=GLM, second="<tool_call>add", marks=_THINK),
    "glm47": Format(tool_parser="glm47", reasoning_parser="glm47", text=GLM, second="<tool_call>add", marks=_THINK),
    "llama3_json": Format(
        tool_parser="llama3_json",
        reasoning_parser="think",
        text=LLAMA,
        second='; {"name": "add',
        marks=("<|python_tag|>",),
        keeps_text=False,
    ),
    "mistral": Format(
        tool_parser="mistral",
        reasoning_parser="mistral",
        text=MISTRAL,
        second="[TOOL_CALLS]add",
        marks=("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"),
    ),
    "deepseek_v3": Format(
        tool_parser="deepseek_v3",
        reasoning_parser="think",
        text=DEEPSEEK_V3,
        second="\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add",
        marks=(*_THINK, *_DEEPSEEK),
    ),
    "deepseek_v31": Format(
        tool_parser="deepseek_v31",
        reasoning_parser="deepseek_r1",
        text=DEEPSEEK_V31,
        second="<｜tool▁call▁begin｜>add",
        marks=(*_THINK, *_DEEPSEEK),
    ),
    "kimi_k2": Format(
        tool_parser="kimi_k2",
        reasoning_parser="kimi_k2",
        text=KIMI_K2,
        second="<|tool_call_begin|>functions.add",
        marks=(
            *_THINK,
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
    ),
    "lfm2": Format(
        tool_parser="lfm2",
        reasoning_parser="think",
        text=LFM2,
        second=", add(",
        marks=("<|tool_call_start|>", "<|tool_call_end|>"),
    ),
    "gemma4": Format(
        tool_parser="gemma4",
        reasoning_parser="gemma4",
        text=GEMMA4,
        second="<|tool_call>call:add",
        marks=("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
    ),
    "minimax_m2": Format(
        tool_parser="minimax_m2",
        reasoning_parser="think",
        text=MINIMAX_M2,
        second='<invoke name="add',
        marks=(*_THINK, "<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "pythonic": Format(
        tool_parser="pythonic", reasoning_parser="think", text=PYTHON, second=", add(", keeps_text=False
    ),
    "hunyuan_a13b": Format(
        tool_parser="hunyuan_a13b", reasoning_parser="think", text=HUNYUAN, second=', {"name": "add', marks=_THINK
    ),
}
WITHOUT_VLLM = ("hermes", "hermes_without_mark", "gpt_oss")
