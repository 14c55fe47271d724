"""The referee by itself: what it may know, and that it learns."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.spec import grpo
from tests.spec.grpo import Critic, Learner, Settings, grpo_step, ppo_step, rollout

END, TARGET = 0, 7


def test_the_referee_is_one_short_file_that_knows_nothing_of_the_package() -> None:
    source = Path(grpo.__file__).read_text()
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert {module.split(".")[0] for module in modules} <= {"__future__", "collections", "dataclasses", "torch"}
    assert len(source.splitlines()) <= 250


def share_of_target(prompt: list[int], tokens: list[int]) -> float:
    return tokens.count(TARGET) / len(tokens)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are not worth sharing: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_what_is_rewarded_becomes_likelier(algorithm: str) -> None:
    torch.manual_seed(0)
    policy = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=8,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=16,
            tie_word_embeddings=False,
        )
    ).eval()
    s = Settings(mini_batch_size=2, kl_loss_coef=1e-3, kl_reward_coef=1e-3)
    actor, reference = Learner(policy, 1e-2, s), copy.deepcopy(policy)
    critic = Learner(Critic(copy.deepcopy(policy.model), 16), 1e-2, s)
    scores = []
    for _ in range(15):
        responses = rollout(policy, [[1], [2], [3], [4]], share_of_target, n=4, max_tokens=4, end=END, temperature=1.0)
        scores.append(sum(r.score for r in responses) / len(responses))
        if algorithm == "grpo":
            grpo_step(actor, reference, responses)
        else:
            ppo_step(actor, critic, reference, responses)
    assert sum(scores[:3]) / 3 < 0.3 and sum(scores[-3:]) / 3 > 0.6, scores
