"""The environments of an engine: their processes, and the episodes that a call to the generator runs."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from verl_like.backends.base import Request, RolloutEngine, Sampling
from verl_like.backends.turn_parsers import vllm_parsers
from verl_like.config.schema import Config
from verl_like.data.templates import Renderer, load_tokenizer
from verl_like.environments.agent_episode import AgentEpisode
from verl_like.environments.codec import ModelCodec
from verl_like.environments.episode import Budgets, EnvironmentEpisode, NextTurn
from verl_like.environments.model_responses import ServedModel
from verl_like.environments.parser_choice import AutoParser
from verl_like.environments.pictures import ModelPictures
from verl_like.environments.processes import EnvironmentProcesses, ProcessSettings
from verl_like.workers.engine_ranks import EngineRanks
from verl_like.workers.environment_episodes import RunningEnvironments
from verl_like.workers.episode_pictures import features_of, model_pictures, with_pictures
from verl_like.workers.episode_thread import NewEpisode
from verl_like.workers.episodes import Episodes
from verl_like.workers.samples import SamplesByRow

if TYPE_CHECKING:
    from verl_like.environments.gateway import Gateway

MODEL_NAME = "policy"  # in responses to agent programs, which may ask for any name


def process_settings(config: Config) -> ProcessSettings:
    """Return the code and the limits of the environments' processes."""
    environment = config.environment
    return ProcessSettings(
        path=environment.path,
        tools=environment.tools,
        python=environment.python,
        max_memory_gib=environment.max_memory_gib,
        max_message_mib=environment.max_message_mib,
        episodes_per_process=environment.episodes_per_process,
        max_processes=environment.max_processes,
        start_timeout_s=environment.start_timeout_s,
    )


def turn_parser(config: Config, tokenizer: PreTrainedTokenizerBase) -> AutoParser:
    """Return the parser of the policy's turns."""
    environment, kwargs = config.environment, config.data.chat_template_kwargs
    return AutoParser(
        tokenizer,
        kwargs,
        tool_parser=environment.tool_parser,
        reasoning_parser=environment.reasoning_parser,
        others=partial(vllm_parsers, tokenizer, kwargs),
    )


def budgets(config: Config) -> Budgets:
    """Return the limits of an episode; if turns have no limit, each gets an equal share of the episode's."""
    environment, num_tokens = config.environment, config.episode_tokens
    return Budgets(
        max_prompt_tokens=config.data.max_prompt_length,
        max_turns=environment.max_turns,
        max_turn_tokens=environment.max_turn_tokens or max(num_tokens // environment.max_turns, 1),
        max_tool_tokens=environment.max_tool_tokens,
        max_episode_tokens=num_tokens,
    )


def environment_row(
    inputs: Mapping[str, Any], renderer: Renderer, *, seed: int, pictures: Sequence[bytes] = ()
) -> dict[str, Any]:
    """Return what an environment is reset with: the prompt as a chat, all columns of its row, and a seed.

    Args:
        inputs: an entry of the column ``reward_inputs``.
        pictures: encoded files, one for each picture of the chat.
    """
    known = {name: inputs[name] for name in ("data_source", "ground_truth", "extra_info")}
    chat = renderer.chat(inputs["messages"], has_pictures=bool(pictures))
    return {"messages": with_pictures(chat, pictures), "columns": {**inputs["columns"], **known}, "seed": seed}


class EnvironmentSource:
    """Creates the episodes of an engine.

    Args:
        decides: whether this rank runs the environments; the other ranks of its engine follow it.
    """

    def __init__(self, config: Config, *, decides: bool) -> None:
        self._config, self._budgets = config, budgets(config)
        tokenizer = load_tokenizer(config.model.tokenizer, config.model.trust_remote_code)
        self._tokenizer, self._renderer = tokenizer, Renderer(config.data, tokenizer)
        self._processes = EnvironmentProcesses(process_settings(config)) if decides else None
        self._parser = turn_parser(config, tokenizer)
        self._pictures: ModelPictures | None = model_pictures(config)
        self._gateway: Gateway | None = None
        if self._processes is not None:
            self._processes.start()
            weakref.finalize(self, self._processes.close)  # a process may serve another run after this one

    def load(self, engine: RolloutEngine) -> None:
        """Return when the user's file is loaded, which began when this object was created."""
        if self._processes is None or not self._processes.load().is_agent:
            return
        data = self._config.data
        longest = data.max_prompt_length + data.max_response_length
        model = ServedModel(name=MODEL_NAME, max_context_tokens=longest, num_tokens=engine.vocab_size)
        from verl_like.environments.gateway import Gateway  # only agents need it, and it imports aiohttp

        self._gateway = Gateway(model)
        self._gateway.start()
        weakref.finalize(self, self._gateway.close)

    def episodes(self, engine: RolloutEngine, ranks: EngineRanks, samples: SamplesByRow) -> Episodes:
        """Create the runner of one call's episodes."""
        environment = self._config.environment
        codec = ModelCodec(
            self._tokenizer,
            end_ids=engine.end_token_ids,
            parser=self._parser,
            template_kwargs=self._config.data.chat_template_kwargs,
        )
        return RunningEnvironments(
            engine,
            ranks,
            self._processes,
            partial(self._new_episodes, codec, samples),
            call_timeout_s=environment.call_timeout_s,
            episode_timeout_s=environment.episode_timeout_s,
            gateway=self._gateway,
        )

    def _new_episodes(self, codec: ModelCodec, of_engine: SamplesByRow, row: int) -> list[NewEpisode]:
        samples = of_engine.of_row(row)
        reset_with = environment_row(
            samples.inputs(row), self._renderer, seed=samples.environment_seed(row), pictures=samples.pictures(row)
        )

        def request(number: int, turn: NextTurn) -> Request:
            return samples.request_of_turn(
                row,
                number,
                turn=turn.turn,
                prompt_ids=turn.prompt_ids,
                max_tokens=turn.max_tokens,
                features=features_of(turn),
            )

        return [
            NewEpisode(
                row=row,
                number=number,
                episode=self._episode(reset_with, codec, samples.sampling),
                request=partial(request, number),
                reads_pictures=self._pictures is not None,
            )
            for number in range(samples.n)
        ]

    def _episode(
        self, reset_with: Mapping[str, Any], codec: ModelCodec, sampling: Sampling
    ) -> EnvironmentEpisode | AgentEpisode:
        history: Any = self._config.environment.history
        if self._gateway is None:
            return EnvironmentEpisode(reset_with, codec, self._budgets, history=history, pictures=self._pictures)
        settings = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        address = self._gateway.open(settings)
        return AgentEpisode(
            reset_with,
            codec,
            self._budgets,
            address=address,
            model=self._gateway.model,
            history=history,
            pictures=self._pictures,
        )
