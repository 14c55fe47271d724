"""``verl-like play``: one episode with the configured environment, by the policy or by a person at the terminal."""

from __future__ import annotations

from typing import Any

import numpy as np

from verl_like.checks.hub_models import check_hub_models
from verl_like.checks.requirements import check_machine
from verl_like.checks.rules import check
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.data.prompts import Prompt
from verl_like.environments.shown import EpisodeSummary, message_lines
from verl_like.runs.folder import RunFolder
from verl_like.telemetry.startup import Startup
from verl_like.training.generation import generate, put_prompts, val_sampling
from verl_like.training.play_by_hand import chosen_prompt
from verl_like.training.policy_jobs import LoadedPolicy, loaded_policy
from verl_like.training.tasks import tokenizer_of
from verl_like.workers.samples import VALIDATION_STEP


def play_by_model(config: Config, row: int) -> str:
    """Play an episode by the policy that ``verl-like eval`` would take, and return it as text.

    Args:
        row: number of the prompt in ``data.val_files``.

    Raises:
        ValueError: the configuration cannot work, or there is no such prompt.
        FeedbackError: the episode ended without a failure, and its score failed.
    """
    check(config)
    check_machine(config, generates=True)
    check_hub_models(config)
    current(Startup).now("reading the data")
    tokenizer = tokenizer_of(config)
    prompt = chosen_prompt(config, tokenizer, row)
    with loaded_policy(config, tokenizer, RunFolder(config)) as policy:
        current(Startup).now("playing the episode")
        return _generated(config, prompt, policy)


def _generated(config: Config, prompt: Prompt, policy: LoadedPolicy) -> str:
    begun: list[tuple[Facts, BlockRef]] = []

    def begin(facts: Facts, block: BlockRef) -> None:
        begun.append((facts, block))

    batch = generate(
        put_prompts([prompt]),
        rollout=policy.rollout,
        begin=begin,
        n=1,
        sampling=val_sampling(config),
        step=VALIDATION_STEP,
        version=policy.version,
    )
    score = None
    if batch.facts["environment_status"][-1] == "ok":
        scoring = policy.rewards.open()
        for facts, block in begun:
            scoring.begin(facts, block)
        score = float(scoring.scores(batch).score[-1])
    return _episode_text(batch, score, timeout_s=config.trainer.stage_timeout_s)


def _episode_text(batch: RemoteBatch, score: float | None, *, timeout_s: float) -> str:
    """Return the chat of the last row, which has all turns, and what became of the episode."""
    columns = batch.fetch(["reward_inputs", "turn_index", "turn_rewards"], timeout_s=timeout_s)
    inputs: Any = columns["reward_inputs"]
    chat = inputs[len(batch) - 1].get("episode", {"prompt": [], "completion": []})
    rewards: dict[int, float] = {}
    for index, found in zip(columns.ragged("turn_index"), columns.ragged("turn_rewards"), strict=True):
        rewards |= dict(zip(index.tolist(), found.tolist(), strict=True))
    facts = {name: values[-1] for name, values in batch.facts.items()}
    summary = EpisodeSummary(
        finish_reason=str(facts["finish_reason"]),
        status=str(facts["environment_status"]),
        failure=str(facts["environment_failure"]),
        reward=None if np.isnan(facts["environment_reward"]) else float(facts["environment_reward"]),
        score=score,
        turn_rewards=[rewards[index] for index in sorted(rewards)],
        num_tool_calls=int(facts["num_tool_calls"]),
        num_tool_errors=int(facts["num_tool_errors"]),
        num_malformed_calls=int(facts["num_malformed_calls"]),
        num_prompt_tokens=int(facts["prompt_tokens"]),
        num_tokens=int(facts["response_tokens"]),
        num_sampled_tokens=int(batch.facts["sampled_tokens"].sum()),
        num_rows=len(batch),
    )
    messages = [line for message in (*chat["prompt"], *chat["completion"]) for line in message_lines(message)]
    return "\n".join([*messages, "", *summary.lines()])
