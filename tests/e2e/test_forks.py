"""Episodes of several rows on the real stack: a chat template that rewrites history, on two ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests._tiers import slow_but
from tests.e2e.conftest import Run, train
from verl_like.protocol.rows_file import read_rows

pytestmark = pytest.mark.usefixtures("ray_cluster")
NUM_EPISODES = 32  # of a step
ESTIMATORS = ("grpo", "gigpo", "turn_credit")
# Earlier turns lose what follows their first character, as those of reasoning models lose their reasoning.
TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role != 'assistant' -%}{{ message.content }}{%- else -%}
{{ message.content if loop.last else message.content[:1] }}{{ eos_token }}
{%- endif -%}
{%- endfor -%}"""
# A game that lasts one to three turns, by what the policy writes.
TALK = """
class Talk:
    def reset(self, **row):
        self.turns = 0

    @property
    def state_key(self):
        return str(self.turns)

    def step(self, text):
        self.turns += 1
        return "+", float(text.count("7")), len(text) % 3 == 0
"""


def assert_samples_have_all_contexts(run: Run) -> None:
    """Check that a line of the samples file has the rows of its episode, and each turn once."""
    lines = [json.loads(line) for line in (run.folder / "samples/step_1.jsonl").read_text().splitlines()]
    for line in lines:
        contexts = [*line.get("earlier_contexts", []), line]
        turns = [turn["index"] for context in contexts for turn in context["turns"]]
        assert turns == list(range(line["num_turns"]))
        for context in contexts:
            learnt = sum(context["tokens"]["response_mask"])
            assert learnt == sum(turn["tokens"] for turn in context["turns"]) > 0
            assert len(context["tokens"]["text"]) == len(context["response_ids"])
            assert context["episode"]["completion"][-1]["role"] == "assistant"
    assert max(len(line.get("earlier_contexts", [])) for line in lines) > 0


def rows_of(run: Run, step: int) -> dict[str, list[Any]]:
    """Return the columns of a step's rows, as its snapshot has them."""
    columns: dict[str, list[Any]] = {}
    for path in sorted((run.folder / f"capsules/step_{step}").glob("rows_*.npz")):
        for name, column in read_rows(path).items():
            columns.setdefault(name, []).extend(column[row] for row in range(len(column)))
    return columns


def sampled_ids(columns: dict[str, list[Any]]) -> dict[tuple[str, int], list[list[int]]]:
    """Return the sampled ids of the rows of each episode."""
    found: dict[tuple[str, int], list[list[int]]] = {}
    for uid, sample, ids, mask in zip(
        *(columns[name] for name in ("uid", "sample", "response_ids", "response_mask")), strict=True
    ):
        found.setdefault((str(uid), int(sample)), []).append(ids[mask].tolist())
    return found


@pytest.fixture(scope="module")
def talk(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talk") / "data"
    shutil.copytree(arithmetic, folder)
    (folder / "model/chat_template.jinja").write_text(TEMPLATE)
    (folder / "talk.py").write_text(TALK)
    return folder


def trained(talk: Path, out: Path, *overrides: str) -> Run:
    return train(
        talk,
        out,
        "rollout=hf",
        "data.apply_chat_template=true",
        "data.max_response_length=24",
        "model.override_config={max_position_embeddings: 64}",
        f"environment.path={talk}/talk.py:Talk",
        "environment.max_turns=3",
        "environment.max_turn_tokens=4",
        "reward.function=''",
        *overrides,
    )


def assert_counted_as_episodes(run: Run) -> None:
    assert sorted(run.metrics) == [1, 2]
    for step, metrics in run.metrics.items():
        assert metrics["prompts/trained"] == metrics["prompts/drawn"] == 8 * step
        assert metrics["reward/num_failed"] == metrics["env/failures"] == 0
        assert metrics["actor/grad_norm"] > 0 and metrics["env/turns"] > 1
        assert metrics["rollout/log_prob_diff_max"] < 1e-4, "the policy has seen what it is trained on"


@pytest.mark.parametrize("estimator", slow_but({"grpo"}, ((name, (name,)) for name in ESTIMATORS)))
def test_a_template_that_rewrites_history_trains_on_several_rows_that_count_as_one_episode(
    estimator: str, talk: Path, tmp_path: Path
) -> None:
    run = trained(talk, tmp_path, f"algorithm.adv_estimator={estimator}", "actor.loss_aggregation=seq-mean-token-mean")
    assert_counted_as_episodes(run)
    episode_rows = rows_of(run, 1)["episode_row"]
    assert len(episode_rows) > NUM_EPISODES == episode_rows.count(0)
    assert_samples_have_all_contexts(run)
    if estimator == "grpo":
        # Ratios are 1, and an episode's tokens share its advantage, so that the loss is the negative mean of the
        # episodes' advantages, which add up to zero in each group. Rows that counted as samples would weigh by number.
        assert abs(run.metrics[1]["actor/loss"]) < 1e-6


@pytest.mark.slow
def test_keeping_the_tokens_gives_a_row_for_each_episode_with_the_same_first_turns(talk: Path, tmp_path: Path) -> None:
    forked = trained(talk, tmp_path / "forked")
    kept = trained(talk, tmp_path / "kept", "environment.history=append")
    assert_counted_as_episodes(kept)
    rows = rows_of(kept, 1)
    assert rows["episode_row"] == [0] * NUM_EPISODES
    of_forked, of_kept = sampled_ids(rows_of(forked, 1)), sampled_ids(rows)
    assert of_forked.keys() == of_kept.keys()
    for key, [one_row] in of_kept.items():
        first, *_ = of_forked[key]
        assert first and one_row[: len(first)] == first
