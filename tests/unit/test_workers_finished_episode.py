"""The rows of a finished episode."""

from __future__ import annotations

import numpy as np

from verl_like.environments.episode import EpisodeEnd
from verl_like.environments.processes import CallFailure
from verl_like.environments.tree import EpisodeTree
from verl_like.protocol import FEATURES, PICTURES, PROMPT_PICTURES, RESPONSE_FEATURES, DataProto, Ragged
from verl_like.workers.finished_episode import finished_sample
from verl_like.workers.group_blocks import GroupBlocks

FACTS = {"environment_seconds": 2.0}


def test_a_row_has_the_attributes_of_the_environment_and_the_numbers_it_reported() -> None:
    tree = EpisodeTree()
    at = tree.add(-1, [{"role": "user", "content": "hi"}], [5, 6])
    tree.add_turn(at, {"role": "assistant", "content": "yes"}, [7, 8], [-0.5, -0.25], version=3)
    end = EpisodeEnd(
        tree=tree,
        finish_reason="stop",
        reward=1.5,
        num_turns=1,
        state_keys=[None],
        numbers={"steps": 2.0, "count": 1.0},
        attributes={"count": 4},
    )
    sample = finished_sample(end, row=1, number=2, versions=(3, 4), facts=FACTS)
    [row] = sample.responses
    assert row.environment == {"steps": 2.0, "count": 4}  # an attribute counts more
    assert (row.prompt_ids, row.token_ids, row.log_probs) == ([5, 6], [7, 8], [-0.5, -0.25])
    assert (sample.row, sample.number, sample.version, sample.newest_version) == (1, 2, 3, 4)
    assert sample.facts["environment_reward"] == 1.5 and sample.facts["environment_seconds"] == 2.0


def test_an_episode_without_a_turn_is_a_row_with_an_empty_response() -> None:
    failure = CallFailure(reason="crash", text="it ended", traceback="the lines")
    end = EpisodeEnd(tree=EpisodeTree(), finish_reason="", failure=failure)
    sample = finished_sample(end, row=0, number=0, versions=(-1, -1), facts=FACTS)
    [row] = sample.responses
    assert row.token_ids == [] and row.finish_reason == "abort" and row.traceback == "the lines"
    assert sample.facts["environment_status"] == "crash" and np.isnan(sample.facts["environment_reward"])


def test_a_block_of_failed_episodes_alone_has_the_column_of_pictures() -> None:
    prompts = DataProto(
        {
            "prompt_ids": Ragged.from_rows([[5, 6]], "int32"),
            "group_id": np.array([0]),
            "uid": ["a"],
            "reward_inputs": [{}],
            "prompt_text": ["hi"],
            FEATURES: [{PICTURES: [b"file"]}],
        }
    )
    end = EpisodeEnd(tree=EpisodeTree(), finish_reason="", failure=CallFailure(reason="junk", text="a path"))
    for reads_pictures in (True, False):
        blocks = GroupBlocks(prompts, n=1, num_prompts=1, writer=0, block_kib=1)
        sample = finished_sample(end, row=0, number=0, versions=(-1, -1), facts=FACTS, reads_pictures=reads_pictures)
        blocks.add(sample)
        facts, block = blocks.rest()
        assert isinstance(block, DataProto)
        assert ("picture_bytes" in facts) == (RESPONSE_FEATURES in block) == reads_pictures
        if reads_pictures:
            [found] = block[RESPONSE_FEATURES]
            assert found == {PICTURES: [], PROMPT_PICTURES: [b"file"]}
