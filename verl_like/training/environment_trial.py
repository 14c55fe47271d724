"""Try the environment before a run starts, to find errors in it before a model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import Config
from verl_like.data.prompts import Prompt, reward_inputs
from verl_like.data.templates import Renderer
from verl_like.environments.answers import checked_finish
from verl_like.environments.codec import ModelCodec
from verl_like.environments.pictures import EpisodePictures
from verl_like.environments.processes import EnvironmentProcesses, NurseryLost, ProcessesExhausted
from verl_like.environments.template_report import template_report
from verl_like.environments.tool_results import read_messages
from verl_like.protocol import PICTURES
from verl_like.workers.environment_source import environment_row, process_settings, turn_parser
from verl_like.workers.episode_pictures import model_pictures

log = logging.getLogger(__name__)


def try_environment(
    config: Config, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt]
) -> list[dict[str, Any]]:
    """Load the user's file and, if it is no agent program, begin and end an episode without a turn for each prompt.

    Returns:
        the field ``episode`` of each prompt's sample, in which the answer is the ground truth.

    Raises:
        ValueError: the file cannot be loaded, an episode fails, or a first prompt is too long.
    """
    processes = EnvironmentProcesses(process_settings(config))
    processes.start()
    try:
        loaded = processes.load()
        if loaded.is_agent:
            log.info("environment: %s is %s", config.environment.path, loaded.kind)
            renderer = Renderer(config.data, tokenizer)
            chats = [renderer.chat(each.messages, has_pictures=bool(each.features)) for each in prompts]
            return [_episode(chat, prompt, {}) for chat, prompt in zip(chats, prompts, strict=True)]
        trial = _Trial(config, tokenizer, processes)
        found = [trial.play(prompt) for prompt in prompts]
        trial.report(loaded.kind)
        return found
    except (TimeoutError, NurseryLost, ProcessesExhausted) as error:
        raise ValueError(str(error)) from error
    finally:
        processes.close()


def _episode(messages: Sequence[Mapping[str, Any]], prompt: Prompt, attributes: Mapping[str, Any]) -> dict[str, Any]:
    answer = {"role": "assistant", "content": str(prompt.ground_truth)}
    return {"prompt": messages, "completion": [answer], "environment": attributes}


class _Trial:
    def __init__(self, config: Config, tokenizer: PreTrainedTokenizerBase, processes: EnvironmentProcesses) -> None:
        self._config, self._processes = config, processes
        self._renderer = Renderer(config.data, tokenizer)
        self._parser = turn_parser(config, tokenizer)
        kwargs = config.data.chat_template_kwargs
        self._codec = ModelCodec(tokenizer, end_ids=(), parser=self._parser, template_kwargs=kwargs)
        self._pictures = model_pictures(config)
        self._tools: list[dict[str, Any]] = []

    def play(self, prompt: Prompt) -> dict[str, Any]:
        """Begin and end an episode, and render its first chat."""
        row = environment_row(
            reward_inputs(prompt),
            self._renderer,
            seed=self._config.trainer.seed,
            pictures=(prompt.features or {}).get(PICTURES, ()),
        )
        number = self._processes.open()
        found = self._answer(number, prompt, {"do": "reset", "row": row})
        messages = self._checked(prompt, found)
        _, attributes = checked_finish(self._answer(number, prompt, {"do": "finish"}))
        self._processes.end(number)
        return _episode(messages, prompt, attributes)

    def _checked(self, prompt: Prompt, found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the first chat of an episode, which has as many tokens as the limit allows."""
        self._tools = found["tools"]
        self._parser.choose(has_tools=bool(self._tools))
        pictures = EpisodePictures(self._pictures)
        messages = read_messages(found["messages"], pictures)
        text = self._codec.template(self._tools)(messages, add_generation_prompt=True)
        tokens = pictures.tokens(self._codec.encode(text), messages)
        num_tokens, most = len(tokens.ids), self._config.data.max_prompt_length
        if num_tokens > most:
            raise ValueError(
                f"the first prompt of {prompt.uid} has {num_tokens} tokens with the tools and the environment's text, "
                f"but data.max_prompt_length is {most}. Set data.max_prompt_length={num_tokens} or more."
            )
        return messages

    def _answer(self, number: int, prompt: Prompt, request: Mapping[str, Any]) -> Any:
        environment, processes = self._config.environment, self._processes
        call = processes.call(number, {"episode": 1, **request}, limit_s=environment.call_timeout_s)
        answer = processes.wait_for(call)
        if (failure := answer.failure) is None:
            return answer.result
        tried = "reset with" if request["do"] == "reset" else "ended without a turn after a reset with"
        raise ValueError(
            f"{environment.path or environment.tools} was {tried} the prompt {prompt.uid}, and failed "
            f"({failure.reason}): {failure.text}\n{failure.traceback}"
            f"Correct the file, or the row."
        )

    def report(self, kind: str) -> None:
        """Log what the chat template does with the turns of an episode, and what that costs in rows."""
        environment = self._config.environment
        log.info("environment: %s is %s", environment.path or environment.tools, kind)
        chosen = self._parser.choose(has_tools=bool(self._tools))
        log.info(
            "environment: tool parser %s, reasoning parser %s", chosen.tool_parser or "none", chosen.reasoning_parser
        )
        if environment.history == "append":
            return
        found = template_report(self._codec.template([]), self._codec.template(self._tools) if self._tools else None)
        for line in found.lines(environment.max_turns):
            log.info("environment: after %s", line)
