"""The rows of a finished episode."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verl_like.environments.episode import EpisodeEnd
from verl_like.environments.turns import no_turns, turns_of
from verl_like.workers.episode_pictures import response_features
from verl_like.workers.episodes import FinishedSample, Response


def finished_sample(
    end: EpisodeEnd,
    *,
    row: int,
    number: int,
    versions: tuple[int, int],
    facts: Mapping[str, float],
    reads_pictures: bool = False,
) -> FinishedSample:
    """Return the rows of a finished episode; one without a sampled token is a row with an empty response.

    Args:
        row, number: the prompt's row, and the number of the sample.
        versions: of the weights that sampled the first and the last token.
        facts: further facts of the episode.
        reads_pictures: whether the rows have the pictures of their tokens.
    """
    of_episode: dict[str, float | str] = {
        "environment_status": end.failure.reason if end.failure else "ok",
        "environment_failure": end.failure.text if end.failure else "",
        "environment_reward": np.nan if end.reward is None else end.reward,
        "num_turns": end.num_turns,
        "num_tool_calls": end.num_tool_calls,
        "num_tool_errors": end.num_tool_errors,
        "num_malformed_calls": end.num_malformed_calls,
        **facts,
    }
    traceback = end.failure.traceback if end.failure else ""
    responses = tuple(
        Response(
            prompt_ids=row.prompt_ids.tolist(),
            token_ids=row.response_ids.tolist(),
            log_probs=row.log_probs.tolist(),
            versions=row.versions,
            is_sampled=row.response_mask,
            finish_reason=end.finish_reason,
            messages=end.tree.messages(row.leaf),
            num_prompt_messages=end.tree.num_prompt_messages(row.leaf),
            environment={**end.numbers, **end.attributes},
            traceback=traceback,
            turns=turns_of(end.tree, row, end.state_keys),
            features=response_features(row) if reads_pictures else None,
        )
        for row in end.tree.rows()
    )
    nothing = Response(
        token_ids=[],
        log_probs=[],
        is_sampled=np.zeros(0, bool),
        finish_reason="abort",
        traceback=traceback,
        turns=no_turns(),
        features={} if reads_pictures else None,
    )
    oldest, newest = versions
    return FinishedSample(
        row=row,
        number=number,
        version=oldest,
        newest_version=newest,
        responses=responses or (nothing,),
        facts=of_episode,
    )
