"""Choose the parsers of a model's turns, by name or by what its chat template writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

from transformers import PreTrainedTokenizerBase

from verl_like.environments.codec import chat_template
from verl_like.environments.episode import ParsedTurn
from verl_like.environments.harmony import harmony
from verl_like.environments.history import ChatTemplate
from verl_like.environments.parser_probes import TOOL, Probe, call_probes, text_probes
from verl_like.environments.parsers import (
    OtherParsers,
    Tools,
    TurnParser,
    hermes,
    hermes_calls,
    reasoning_only,
    with_reasoning,
)

AUTO = "auto"
THINK = "think"  # reasoning that ends at </think>
# Parsers of this package: (tool parser, reasoning parser) -> parser. "" stands for no calls.
BUILT_IN: dict[tuple[str, str], TurnParser] = {
    ("", THINK): reasoning_only,
    ("hermes", THINK): hermes,
    ("", "openai_gptoss"): harmony,
    ("openai", "openai_gptoss"): harmony,
}
# Formats of vLLM whose reasoning has other marks than <think>, under the name of their tool parser. Their templates may
# leave the reasoning out of earlier turns, so that a rendering does not show it.
OWN_REASONING = frozenset({"gemma4", "kimi_k3", "mistral", "muse_glimmer", "plamo3", "seed_oss"})

GPT_OSS = ("openai", "openai_gptoss")

Others: TypeAlias = Callable[[], OtherParsers]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenParser:
    """A parser and the names it was made of.

    Args:
        tool_parser: empty if the environment has no tools.
    """

    parser: TurnParser
    tool_parser: str
    reasoning_parser: str


def chosen_parser(
    tokenizer: PreTrainedTokenizerBase,
    template_kwargs: Mapping[str, Any],
    *,
    tool_parser: str,
    reasoning_parser: str,
    has_tools: bool,
    others: Others,
) -> ChosenParser:
    """Return the parser of a model's turns.

    With "auto", short turns are rendered with the chat template, and a parser is chosen that reads them back exactly:
    first those of this package, then the others. Several that read different things are refused.

    Args:
        template_kwargs: ``data.chat_template_kwargs``.
        tool_parser: a name or "auto"; without tools, "auto" is none.
        reasoning_parser: a name or "auto".
        others: imports the parsers of another package; called only if this package has none that fits. Raises
            ValueError if the package is missing.

    Raises:
        ValueError: no parser fits, or several that differ; the message names them and the option to set.
    """
    parsers = _Parsers(others)
    is_shown = reasoning_parser != AUTO
    if reasoning_parser == AUTO and tool_parser == GPT_OSS[0]:
        reasoning_parser, is_shown = GPT_OSS[1], True
    elif reasoning_parser == AUTO:
        reasoning_parser, is_shown = _reasoning_parser(parsers, chat_template(tokenizer, [], template_kwargs))

    def pair(name: str) -> tuple[str, str]:
        return name, name if name in OWN_REASONING and not is_shown else reasoning_parser

    if tool_parser == AUTO and has_tools:
        tool_parser = _tool_parser(parsers, chat_template(tokenizer, [TOOL], template_kwargs), pair)
    elif tool_parser == AUTO:
        tool_parser = ""
    tool_parser, reasoning_parser = pair(tool_parser)
    parser = parsers.parser(tool_parser, reasoning_parser)
    return ChosenParser(parser=parser, tool_parser=tool_parser, reasoning_parser=reasoning_parser)


class _Parsers:
    """Parsers by name, of this package and of another."""

    def __init__(self, others: Others) -> None:
        self._load = others

    @cached_property
    def others(self) -> OtherParsers:
        return self._load()

    def parser(self, tool_parser: str, reasoning_parser: str) -> TurnParser:
        """Return the parser of both parts.

        Raises:
            ValueError: there is none.
        """
        if (found := BUILT_IN.get((tool_parser, reasoning_parser))) is not None:
            return found
        if tool_parser == GPT_OSS[0] or reasoning_parser == GPT_OSS[1]:
            raise ValueError(
                f"environment.tool_parser is {tool_parser} and environment.reasoning_parser is {reasoning_parser}, but "
                "one parser reads the whole format of gpt-oss. Set them to openai and openai_gptoss."
            )
        try:
            if reasoning_parser == THINK:
                return _joined(reasoning_only, self.others.parser(tool_parser=tool_parser, reasoning_parser=""))
            if tool_parser == "hermes":
                return _joined(self.others.parser(tool_parser="", reasoning_parser=reasoning_parser), hermes_calls)
            return self.others.parser(tool_parser=tool_parser, reasoning_parser=reasoning_parser)
        except ValueError as error:
            reason = str(error).removesuffix(".")
            raise ValueError(
                f"environment.tool_parser={tool_parser or AUTO} with environment.reasoning_parser={reasoning_parser} "
                f"cannot be used: {reason}. Without vLLM, the tool parsers hermes and openai and the reasoning parsers "
                "think and openai_gptoss can be set."
            ) from error


def _joined(reasoning: TurnParser, calls: TurnParser) -> TurnParser:
    """Return a parser of both parts, made of one for each."""

    def parser(text: str, tools: Tools = ()) -> ParsedTurn:
        before = reasoning(text, tools)
        if before.problem:
            return before
        return with_reasoning(calls(before.message["content"], tools), before.message.get("reasoning_content", ""))

    return parser


def _reasoning_parser(parsers: _Parsers, template: ChatTemplate) -> tuple[str, bool]:
    """Return the name of a parser that reads back turns without calls, and whether the template shows reasoning."""
    try:
        probes = text_probes(template)
    except ValueError:  # no such chat is ever parsed
        return THINK, False
    is_shown = len(probes) > 1
    for name in (THINK, GPT_OSS[1]):
        if all(probe.holds(BUILT_IN["", name]) for probe in probes):
            return name, is_shown
    option = "environment.reasoning_parser"
    found = _candidates(parsers, probes, option, lambda others: [("", name) for name in others.reasoning_parsers])
    return _only_one({pair[1]: parser for pair, parser in found.items()}, probes, option, probes[-1].text), True


def _tool_parser(parsers: _Parsers, template: ChatTemplate, pair: Callable[[str], tuple[str, str]]) -> str:
    """Return the name of a parser that reads back turns with calls.

    Args:
        pair: returns the names of both parsers for that of the tool parser.
    """
    option = "environment.tool_parser"
    try:
        probes = call_probes(template)
    except ValueError as error:
        raise ValueError(
            f"{option} is auto, but {error}. Use a model whose chat template accepts tool calls."
        ) from error
    if not probes:
        raise ValueError(
            f"{option} is auto and the environment has tools, but the chat template leaves tool calls out of the "
            "conversation, so their format is unknown. Set "
            f"{option}=hermes if the model writes calls as Qwen does, or use a model whose template writes them."
        )
    for name in ("hermes", GPT_OSS[0]):
        parser = BUILT_IN.get(pair(name))
        if parser is not None and all(probe.holds(parser) for probe in probes if probe.must_hold):
            return name
    found = _candidates(parsers, probes, option, lambda others: [pair(name) for name in others.tool_parsers])
    return _only_one({names[0]: parser for names, parser in found.items()}, probes, option, probes[0].text)


def _candidates(
    parsers: _Parsers,
    probes: Sequence[Probe],
    option: str,
    pairs: Callable[[OtherParsers], Collection[tuple[str, str]]],
) -> dict[tuple[str, str], TurnParser]:
    """Return the parsers of the other package that read back what they must, by their names."""
    try:
        others = parsers.others
    except ValueError as error:
        raise ValueError(
            f"{option} is auto, but the chat template writes turns as {probes[0].text!r}, which the parsers of this "
            f"package do not read, and {error} Install vLLM, or use another model."
        ) from error
    found = {}
    for names in pairs(others):
        try:
            parser = parsers.parser(*names)
        except ValueError:  # needs tokens that this model does not have, or a package
            continue
        if all(probe.holds(parser) for probe in probes if probe.must_hold):
            found[names] = parser
    return found


def _only_one(found: Mapping[str, TurnParser], probes: Sequence[Probe], option: str, shown: str) -> str:
    """Return the first of the parsers that read everything back; of others, the first if all read the same.

    Raises:
        ValueError: there is none, or they differ.
    """
    if exact := [name for name, parser in found.items() if all(probe.holds(parser) for probe in probes)]:
        return exact[0]
    read = {name: tuple(probe.found(parser) for probe in probes) for name, parser in found.items()}
    if len(set(read.values())) == 1:
        return next(iter(read))
    said = f"{', '.join(found)} read it, but differ in what they read" if found else "no parser reads it back"
    raise ValueError(
        f"{option} is auto, but for the text {shown!r}, as the chat template writes it, {said}. Set {option} to the "
        "parser that the model's documentation names for vLLM."
    )


class AutoParser:
    """The parser of a model's turns, chosen at the first turn with tools and at the first without.

    Args:
        tool_parser, reasoning_parser, others: as for :func:`chosen_parser`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template_kwargs: Mapping[str, Any],
        *,
        tool_parser: str,
        reasoning_parser: str,
        others: Others,
    ) -> None:
        self._choose = partial(
            chosen_parser,
            tokenizer,
            template_kwargs,
            tool_parser=tool_parser,
            reasoning_parser=reasoning_parser,
            others=others,
        )
        self._chosen: dict[bool, ChosenParser] = {}

    def choose(self, *, has_tools: bool) -> ChosenParser:
        """Return the parser of turns with or without tools.

        Raises:
            ValueError: as :func:`chosen_parser`.
        """
        if has_tools not in self._chosen:
            self._chosen[has_tools] = self._choose(has_tools=has_tools)
        return self._chosen[has_tools]

    def __call__(self, text: str, tools: Tools = ()) -> ParsedTurn:
        return self.choose(has_tools=bool(tools)).parser(text, tools)
