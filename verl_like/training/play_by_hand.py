"""``verl-like play --by-hand``: an episode whose turns a person types. Neither a model nor Ray is loaded."""

from __future__ import annotations

from array import array
from typing import Any

from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import Config
from verl_like.config.schema.reward import ENVIRONMENT
from verl_like.data.prompts import Prompt, PromptDataset, reward_inputs
from verl_like.data.selection import val_rows
from verl_like.data.templates import Renderer, load_tokenizer
from verl_like.environments.by_hand import HandPlayed, Left, Terminal, hand_end_ids
from verl_like.environments.codec import ModelCodec
from verl_like.environments.episode import EnvironmentEpisode, EpisodeEnd
from verl_like.environments.processes import EnvironmentProcesses
from verl_like.environments.shown import EpisodeSummary
from verl_like.environments.tree import TreeRow
from verl_like.protocol import PICTURES
from verl_like.reward.decoding import Decoder
from verl_like.reward.scorer_messages import Sample, scorer_task
from verl_like.reward.team import ScorerTeam
from verl_like.training.tasks import picture_tokens
from verl_like.workers.environment_source import budgets, environment_row, process_settings, turn_parser
from verl_like.workers.episode_pictures import model_pictures
from verl_like.workers.samples import VALIDATION_STEP, environment_seed


def play_by_hand(config: Config, row: int, terminal: Terminal) -> str:
    """Play an episode whose turns are typed, without a model, and return how it ended.

    Args:
        row: number of the prompt in ``data.val_files``.

    Raises:
        ValueError: the file cannot be loaded or is an agent program, or there is no such prompt.
    """
    tokenizer = load_tokenizer(config.model.tokenizer, config.model.trust_remote_code)
    prompt = chosen_prompt(config, tokenizer, row)
    processes = EnvironmentProcesses(process_settings(config))
    processes.start()
    try:
        if processes.load().is_agent:
            raise ValueError(
                f"environment.path is {config.environment.path}, an agent program, which makes its own requests to a "
                "model, but --by-hand expects an environment or tools. Leave out --by-hand."
            )
        end = _played(config, tokenizer, prompt, processes, terminal)
    except TimeoutError as error:
        raise ValueError(str(error)) from error
    finally:
        processes.close()
    if isinstance(end, Left):
        return f"\nleft after {end.num_turns} turns; the episode has no end and no reward"
    return "\n".join(["", *_summary(end, _score(config, tokenizer, prompt, end)).lines()])


def _played(
    config: Config,
    tokenizer: PreTrainedTokenizerBase,
    prompt: Prompt,
    processes: EnvironmentProcesses,
    terminal: Terminal,
) -> EpisodeEnd | Left:
    def codec(end_ids: list[int]) -> ModelCodec:
        return ModelCodec(
            tokenizer,
            end_ids=end_ids,
            parser=turn_parser(config, tokenizer),
            template_kwargs=config.data.chat_template_kwargs,
        )

    seed = environment_seed(config.trainer.seed, VALIDATION_STEP, prompt.uid)
    with_end = codec(hand_end_ids(codec([]), eos_id=tokenizer.eos_token_id))
    history: Any = config.environment.history
    episode = EnvironmentEpisode(
        environment_row(
            reward_inputs(prompt),
            Renderer(config.data, tokenizer),
            seed=seed,
            pictures=(prompt.features or {}).get(PICTURES, ()),
        ),
        with_end,
        budgets(config),
        history=history,
        pictures=model_pictures(config),
    )
    limit_s = config.environment.call_timeout_s
    return HandPlayed(episode, with_end, processes, terminal, call_timeout_s=limit_s).play()


def _summary(end: EpisodeEnd, score: float | None) -> EpisodeSummary:
    rows = list(end.tree.rows())
    failure = "" if end.failure is None else f"{end.failure.text}\n{end.failure.traceback}".rstrip()
    return EpisodeSummary(
        finish_reason=end.finish_reason,
        status="ok" if end.failure is None else end.failure.reason,
        failure=failure,
        reward=end.reward,
        score=score,
        turn_rewards=end.tree.turn_rewards(),
        num_tool_calls=end.num_tool_calls,
        num_tool_errors=end.num_tool_errors,
        num_malformed_calls=end.num_malformed_calls,
        num_prompt_tokens=len(rows[-1].prompt_ids) if rows else 0,
        num_tokens=len(rows[-1].response_ids) if rows else 0,
        num_sampled_tokens=int(sum(row.response_mask.sum() for row in rows)),
        num_rows=len(rows),
    )


def _score(config: Config, tokenizer: PreTrainedTokenizerBase, prompt: Prompt, end: EpisodeEnd) -> float | None:
    """Return the score as a run computes it, without models as scorers; None after a failure.

    Raises:
        ValueError: a reward function failed.
    """
    if end.failure is not None:
        return None
    reward = config.scoring
    if reward.function == ENVIRONMENT:
        return None if end.reward is None else config.environment.reward_weight * end.reward
    row = next(reversed(list(end.tree.rows())), None)
    of_environment, task = config.environment.reward_weight * (end.reward or 0.0), scorer_task(reward)
    if row is None or not task.functions:
        return of_environment
    decoder = Decoder(tokenizer, trust_remote_code=config.model.trust_remote_code)
    decoder.load()
    [response] = decoder.texts([row.response_ids.tolist()])
    with ScorerTeam(task, 1) as team:
        [outcome] = team.score([_sample(prompt, end, row, response)])
    if outcome.score is None:
        raise ValueError(f"the reward function failed ({outcome.status}): {outcome.message}")
    return outcome.score + of_environment


def _sample(prompt: Prompt, end: EpisodeEnd, row: TreeRow, response: str) -> Sample:
    messages = [dict(message) for message in end.tree.messages(row.leaf)]
    num_prompt = end.tree.num_prompt_messages(row.leaf)
    return Sample(
        response=response,
        prompt=prompt.text,
        messages=prompt.messages,
        data_source=prompt.data_source,
        ground_truth=prompt.ground_truth,
        extra_info=prompt.extra_info,
        columns=prompt.columns,
        response_ids=array("i", row.response_ids.tolist()),
        episode={"prompt": messages[:num_prompt], "completion": messages[num_prompt:]},
    )


def chosen_prompt(config: Config, tokenizer: PreTrainedTokenizerBase, row: int) -> Prompt:
    """Return a prompt by its number.

    Raises:
        ValueError: there is no such prompt.
    """
    prompts = PromptDataset(val_rows(config.data), config.data, tokenizer, pictures=picture_tokens(config))
    if not 0 <= row < len(prompts):
        raise ValueError(f"--row is {row}, but there are {len(prompts)} prompts. Name one of 0 to {len(prompts) - 1}.")
    return prompts[row]
