"""Read a turn of gpt-oss: messages with channels, in the format that its authors call Harmony.

A turn begins after ``<|start|>assistant``. Each message is a header, ``<|message|>`` and its text. The header has the
channel ("analysis" is reasoning, "final" and "commentary" are content) and, in a tool call, the recipient. vLLM's
parser of this format needs a vocabulary that is downloaded at run time; this one reads the text.
"""

from __future__ import annotations

import re
from typing import Any

from verl_like.environments.episode import ParsedTurn
from verl_like.environments.parsers import Tools, arguments_of, message, tool_call

_MESSAGE = re.compile(
    r"(?P<header>[^<]*(?:<\|(?:channel|constrain)\|>[^<]*)*)<\|message\|>"
    r"(?P<text>.*?)(?P<end><\|(?:end|call|return)\|>|(?=<\|(?:start|channel)\|>)|\Z)",
    re.DOTALL,
)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_START = "<|start|>assistant"
_CUT_CALL = re.compile(r"\s*(?:<\|channel\|>\s*\w*\s*)?to=")


def harmony(text: str, tools: Tools = ()) -> ParsedTurn:
    """Parse a turn in the format of gpt-oss.

    The message has the reasoning as ``thinking`` too, which is the name in the templates of these models; they refuse
    it in a turn with content and calls.
    """
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[dict[str, Any]] = []
    problem, at = "", 0
    while at < len(text):
        is_header = text.startswith(_START, at)
        at += len(_START) if is_header else 0
        if (found := _MESSAGE.match(text, at)) is None:
            if _CUT_CALL.match(text, at):
                problem = "the tool call has a header, but no <|message|> with the arguments."
            elif not is_header:
                content.append(text[at:])
            break
        at = found.end()
        channel, recipient = _CHANNEL.search(found["header"]), _RECIPIENT.search(found["header"])
        if recipient:
            try:
                calls.append(tool_call(len(calls), recipient[1], arguments_of(recipient[1], found["text"])))
            except ValueError as error:
                problem = str(error)
        else:
            (reasoning if channel and channel[1] == "analysis" else content).append(found["text"])
    turn = message("\n".join(content), "\n".join(reasoning).strip(), [] if problem else calls)
    if reasoning and not (content and calls):
        turn["thinking"] = turn.get("reasoning_content", "")
    return ParsedTurn(message=turn, problem=problem)
