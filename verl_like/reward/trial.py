"""Try the reward functions before a run starts, to find errors in them before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from verl_like.config.schema import RewardConfig
from verl_like.reward.ground_truth_check import (
    Progress,
    check_readings,
    distinct,
    first_of_each_source,
    no_progress,
    read,
)
from verl_like.reward.scorer_messages import NOT_READ, UNREADABLE, RowGroundTruth, Sample, scorer_task
from verl_like.reward.specs import function_names
from verl_like.reward.team import ScorerTeam


def try_reward(
    config: RewardConfig,
    samples: Mapping[str, Sample],
    ground_truths: Iterable[tuple[str, RowGroundTruth]] = (),
    *,
    progress: Progress = no_progress,
) -> None:
    """Load the reward functions and, if ``reward.try_first``, score these samples and read these ground truths.

    This happens in separate processes, never in the caller's. Ground truths compared as text cause a warning.

    Args:
        samples: one for each data source, by the name of its prompt.
        ground_truths: those of all rows, each with the name of its prompt.
        progress: called with the number of ground truths read so far.

    Raises:
        ValueError: a function cannot be loaded or called, or gives a sample no score; or some ground truths cannot be
            compared with anything.
    """
    task = scorer_task(config)
    if not task.functions:
        return
    names = function_names(task.functions)
    try:
        with ScorerTeam(task, num_processes=1) as scorer:
            if config.try_first:
                wanted = distinct(ground_truths)
                first = read(first_of_each_source(wanted), task, num_processes=1, alone=scorer, progress=no_progress)
                status = {each.row.data_source: reading.status for each, reading in first}
                # A sample with an unreadable ground truth would fail only for that; these are reported together below.
                scorable = {name: each for name, each in samples.items() if status.get(each.data_source) != UNREADABLE}
                _try_each(scorer, scorable, names)
                done = {each.index for each, _ in first}
                rest = [each for each in wanted if each.index not in done and status[each.row.data_source] != NOT_READ]
                others = read(rest, task, num_processes=config.num_workers, alone=scorer, progress=progress)
                check_readings([*first, *others])
    except RuntimeError as error:  # the process died or hung; only the functions can be the cause
        raise ValueError(f"{names} cannot be used: {error}") from error


def _try_each(scorer: ScorerTeam, samples: Mapping[str, Sample], names: str) -> None:
    for prompt, sample in samples.items():
        # As a batch of two and alone: a function that returns a list of fixed length would pass one of these.
        for outcome in (*scorer.score([sample, sample]), *scorer.score([sample])):
            if outcome.status != "ok" or outcome.message:
                kind = "as a batch" if outcome.status == "ok" else outcome.status
                raise ValueError(
                    f"{names} was tried on prompt {prompt} (data_source {sample.data_source!r}) with the ground truth "
                    f"as response, and failed ({kind}):\n{outcome.message}\nCorrect the function, or the row; a "
                    "wrong or malformed response should get a low score, not raise. reward.try_first=false skips this "
                    "trial."
                )
