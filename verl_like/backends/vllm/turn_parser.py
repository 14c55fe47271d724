"""Read turns of the policy with vLLM's own tool and reasoning parsers (0.32)."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import Parser, ParserManager
from vllm.parser.engine.adapters import ParserEngineToolAdapter
from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers.hf import get_cached_tokenizer
from vllm.tool_parsers import ToolParserManager

from verl_like.backends.vllm.call_marks import MARKS
from verl_like.environments.episode import ParsedTurn
from verl_like.environments.parsers import Tools, TurnParser, arguments_of, message, tool_call

ELSEWHERE = frozenset({"openai", "openai_gptoss"})  # vLLM reads them with a vocabulary that it downloads
NEED_IDS = frozenset({"minicpmv"})  # of the reasoning parsers; all others read text
MAX_KEPT = 8  # parsers of one thread; each has other tools


class _Heard(logging.Handler):
    """Keeps the last exception that vLLM's parsers logged in this thread.

    They log every text that they cannot read, with a traceback, which would be thousands of lines a step.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._local = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._local.text = f"{type(error).__name__}: {error}" if error else record.getMessage()

    def take(self) -> str:
        """Return the text since the last call; empty if there is none."""
        text = str(vars(self._local).get("text", ""))
        self._local.text = ""
        return text


_HEARD = _Heard()


def _listen() -> None:
    for name in ("vllm.tool_parsers", "vllm.reasoning", "vllm.parser"):
        logger = logging.getLogger(name)
        if _HEARD not in logger.handlers:
            logger.addHandler(_HEARD)
            logger.setLevel(logging.WARNING)
            logger.propagate = False


class VllmParsers:
    """All parsers of the installed vLLM, for one tokenizer.

    Args:
        template_kwargs: ``data.chat_template_kwargs``; some parsers ask whether the template turns reasoning on.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_kwargs: Mapping[str, Any]) -> None:
        _listen()
        # Each parser asks for the whole vocabulary, which takes transformers 50 ms.
        self._tokenizer, self._template_kwargs = get_cached_tokenizer(tokenizer), dict(template_kwargs)

    @property
    def tool_parsers(self) -> Collection[str]:
        return [name for name in ToolParserManager.list_registered() if name not in ELSEWHERE]

    @property
    def reasoning_parsers(self) -> Collection[str]:
        return [name for name in ReasoningParserManager.list_registered() if name not in ELSEWHERE]

    def parser(self, *, tool_parser: str, reasoning_parser: str) -> TurnParser:
        """Return a parser; an empty name means that the text has no such part.

        Raises:
            ValueError: vLLM has no such parser, or the parser cannot be used with this tokenizer.
        """
        for kind, name, names in (
            ("tool", tool_parser, self.tool_parsers),
            ("reasoning", reasoning_parser, self.reasoning_parsers),
        ):
            if name and name not in names:
                raise ValueError(f"vLLM has no {kind} parser {name}. It has {', '.join(names)}.")
        return _VllmTurnParser(
            self._tokenizer,
            tool_parser=tool_parser,
            reasoning_parser=reasoning_parser,
            template_kwargs=self._template_kwargs,
        )


class _VllmTurnParser:
    """Parses turns with one pair of parsers.

    A parser has state while it reads, and takes up to 30 ms to construct: each thread has its own, and keeps it.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        tool_parser: str,
        reasoning_parser: str,
        template_kwargs: Mapping[str, Any],
    ) -> None:
        self._tokenizer, self._template_kwargs = tokenizer, template_kwargs
        self._name, self._marks = tool_parser or reasoning_parser, MARKS.get(tool_parser)
        self._needs_ids = reasoning_parser in NEED_IDS
        try:
            found = ParserManager.get_parser(
                tool_parser or None, reasoning_parser or None, enable_auto_tools=True, tokenizer=tokenizer
            )
        except Exception as error:  # parsers raise anything for a tokenizer that lacks their tokens
            cause = str(error.__cause__ or error).partition("\n")[0]
            raise ValueError(f"{self._name} cannot be used with this tokenizer: {cause}") from error
        assert found is not None, "at least one parser must be named"
        self._class: type[Parser] = found
        self._local = threading.local()

    def __call__(self, text: str, tools: Tools = ()) -> ParsedTurn:
        _HEARD.take()
        try:
            parser, request = self._kept(tools)
            ids = self._tokenizer.encode(text, add_special_tokens=False) if self._needs_ids else ()
            reasoning, content, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=ids)
        except Exception as error:  # noqa: BLE001 (hostile text; a parser of another package may raise anything)
            vars(self._local).clear()  # it may have stopped in the middle
            problem = f"the turn cannot be read as {self._name}: {type(error).__name__}: {error}"
            return ParsedTurn(message=message(text, "", []), problem=problem)
        return self._turn(text, reasoning or "", content or "", calls or [])

    def _turn(self, text: str, reasoning: str, content: str, found: list[Any]) -> ParsedTurn:
        calls: list[dict[str, Any]] = []
        problem = self._problem(text, reasoning, len(found))
        for number, call in enumerate(found):
            try:
                # An id that the model wrote must stay: the template writes it again, for the call and for its result.
                written = call.id if call.id and call.id in text else ""
                calls.append(tool_call(number, call.name, arguments_of(call.name, call.arguments), written))
            except ValueError as error:
                problem = problem or str(error)
        if calls or problem or reasoning:
            content = content.strip()
        return ParsedTurn(message=message(content, reasoning.strip(), [] if problem else calls), problem=problem)

    def _problem(self, text: str, reasoning: str, num_calls: int) -> str:
        if self._marks is None:
            return ""
        at = text.find(reasoning)
        after = text[at + len(reasoning) :] if at >= 0 else text  # reasoning may contain marks
        if not (problem := self._marks.problem(after, num_calls)):
            return ""
        heard = _HEARD.take()
        return f"{problem} {heard}".strip()

    def _kept(self, tools: Tools) -> tuple[Parser, ChatCompletionRequest]:
        """Return this thread's parser and request for these tools."""
        kept: dict[str, tuple[Parser, ChatCompletionRequest]] = vars(self._local)
        key = json.dumps(list(tools), sort_keys=True, default=str)
        if key not in kept:
            if len(kept) >= MAX_KEPT:
                kept.clear()
            asked: dict[str, Any] = {"messages": [], "tools": list(tools) or None}
            request = ChatCompletionRequest.model_validate(asked)
            if not tools:
                request.tool_choice = None  # "none" would leave the calls in the content
            parser = self._class(self._tokenizer, tools=request.tools, chat_template_kwargs=self._template_kwargs)
            _do_not_stream(parser)
            kept[key] = parser, request
        return kept[key]


def _do_not_stream(parser: Parser) -> None:
    """Turn off the arguments of an unfinished call, which are for clients that stream.

    vLLM 0.32 works them out again at each mark in the arguments, ">" for instance, although the whole text is there:
    8 s for a call with 20 kB of code, which takes 20 ms without. The finished arguments do not depend on them.
    """
    tool_parser = parser.tool_parser
    if isinstance(tool_parser, ParserEngineToolAdapter):
        tool_parser._parser_engine._stream_arg_deltas = False
