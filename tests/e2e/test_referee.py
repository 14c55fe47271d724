"""Real runs of GRPO and PPO, held against the algorithms in one file (``tests/spec/grpo.py``).

The referee is given a run's first weights and the responses that the run saved, and nothing that the run computed.
Where they differ, one of them is wrong: the first step and quantity that differ say where to look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from transformers import AutoModel, AutoModelForCausalLM

from tests.e2e.conftest import Run, train
from tests.spec.grpo import Critic, Learner, Report, Response, Settings, grpo_step, ppo_step
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.protocol import Array, DataProto, Ragged

pytestmark = pytest.mark.usefixtures("ray_cluster")
STEPS = (1, 2, 3)
TOLERANCE = 1e-5  # all in float32

REWARD = '''
def small_digits(data_source, solution_str, ground_truth, extra_info):
    """The share of characters that are digits below 4, less something for each character."""
    return sum(c in "0123" for c in solution_str) / max(len(solution_str), 1) - 0.03 * len(solution_str)
'''
# Four updates of each batch, on two ranks, in which ratios, gradients and values are clipped and weights decay. AdamW
# divides a gradient by its own size; where that is nothing but rounding (1e-9 here), eps must be what it is divided by.
LR = 1e-3
SETTINGS = Settings(
    mini_batch_size=2, epochs=2, clip_low=0.02, clip_high=0.03, weight_decay=0.1, adam_eps=1e-6, max_grad_norm=0.1
)
BOTH = {
    "trainer.total_training_steps": len(STEPS),
    "trainer.num_samples_to_save": -1,
    "trainer.save_freq": 1,
    "trainer.max_checkpoints": len(STEPS),
    "cluster.workers_per_node": 2,
    "data.train_batch_size": 4,
    "data.max_response_length": 12,
    "actor.mini_batch_size": 2,
    "actor.epochs": 2,
    "actor.clip_ratio_low": 0.02,
    "actor.clip_ratio_high": 0.03,
    "actor.optim.lr": LR,
    "actor.optim.weight_decay": 0.1,
    "actor.optim.eps": 1e-6,
    "actor.optim.max_grad_norm": 0.1,
}

GRPO_SETTINGS = replace(SETTINGS, kl_loss_coef=0.1, mean_over="responses")
GRPO = {**BOTH, "algorithm": "grpo", "actor.kl_loss_coef": 0.1, "actor.loss_aggregation": "seq-mean-token-mean"}

PPO_SETTINGS = replace(
    SETTINGS, gamma=0.99, lam=0.9, kl_reward_coef=0.1, entropy_coef=0.01, temperature=0.9, value_clip=0.02
)
PPO = {
    **BOTH,
    "algorithm": "ppo",
    "algorithm.gamma": 0.99,
    "algorithm.lam": 0.9,
    "algorithm.kl_coef": 0.1,
    "actor.entropy_coef": 0.01,
    "rollout.temperature": 0.9,
    "critic.mini_batch_size": 2,
    "critic.epochs": 2,
    "critic.value_clip": 0.02,
    "critic.optim.lr": LR,
    "critic.optim.weight_decay": 0.1,
    "critic.optim.eps": 1e-6,
    "critic.optim.max_grad_norm": 0.1,
}
RUNS = {"grpo": (GRPO, GRPO_SETTINGS), "ppo": (PPO, PPO_SETTINGS)}

# Token columns of a batch, and what the referee calls them.
OF_A_RESPONSE = {
    "old_log_probs": "old_log_probs",
    "ref_log_probs": "ref_log_probs",
    "values": "old_values",
    "advantages": "advantages",
    "returns": "returns",
}
METRICS = {
    ("actor", "loss"): "actor/loss",
    ("actor", "grad_norm"): "actor/grad_norm",
    ("critic", "loss"): "critic/value_loss",
    ("critic", "grad_norm"): "critic/grad_norm",
}
# One setting at a time, each of which must show.
OTHER_RULES: dict[str, dict[str, object]] = {
    "grpo": {
        "mini_batch_size": 4,
        "clip_low": 0.03,
        "clip_high": 0.02,
        "mean_over": "tokens",
        "kl_loss_coef": 0.0,
        "weight_decay": 0.0,
        "max_grad_norm": 10.0,
    },
    "ppo": {
        "epochs": 1,
        "kl_reward_coef": 0.0,
        "entropy_coef": 0.0,
        "gamma": 1.0,
        "lam": 1.0,
        "value_clip": 10.0,
        "temperature": 1.0,
        "adam_eps": 1e-4,
    },
}


@dataclass(frozen=True, slots=True)
class Audited:
    """A finished run, with the token columns of each step, which no run writes down."""

    run: Run
    columns: list[DataProto]

    def responses(self, step: int) -> list[Response]:
        lines = [json.loads(line) for line in (self.run.folder / f"samples/step_{step}.jsonl").read_text().splitlines()]
        prompts = list(dict.fromkeys(line["uid"] for line in lines))
        return [
            Response(
                prompt=line["prompt_ids"],
                tokens=line["response_ids"],
                score=line["score"],
                group=prompts.index(line["uid"]),
            )
            for line in lines
        ]

    def weights(self, role: str, step: int) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, assembled from the ranks' shards by torch's own reader."""
        whole = self.run.folder / f"{role}_{step}.pt"
        dcp_to_torch_save(self.run.folder / f"checkpoints/step_{step}" / role, whole)
        return {
            name.removeprefix("backbone."): weight
            for name, weight in torch.load(whole, weights_only=True)["model"].items()
        }


def audited(arithmetic: Path, out: Path, options: Mapping[str, object]) -> Audited:
    """Train, and look at the batch of each step when its advantages are there."""
    seen: list[DataProto] = []
    add_facts = RemoteBatch.add_facts

    def watched(batch: RemoteBatch, facts: Mapping[str, Array]) -> None:
        add_facts(batch, facts)
        if "has_advantage" in facts:
            found = batch.fetch(sorted(set(OF_A_RESPONSE) & batch.columns), timeout_s=60)
            if "advantage" in facts:  # one of each response, which its tokens share
                of_tokens = [
                    [value] * num for value, num in zip(facts["advantage"], batch.facts["response_tokens"], strict=True)
                ]
                found = DataProto({**found.columns, "advantages": Ragged.from_rows(of_tokens, "float32")})
            seen.append(found)

    (out / "reward.py").write_text(REWARD)
    overrides = [f"{name}={value}" for name, value in options.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteBatch, "add_facts", watched)
        run = train(arithmetic, out, f"reward.function={out}/reward.py:small_digits", *overrides)
    return Audited(run, seen)


Weights = dict[str, dict[str, Tensor]]  # by role and name


@dataclass(frozen=True, slots=True)
class Account:
    """What the referee makes of one step of a run."""

    responses: list[Response]
    reports: dict[str, Report]  # by role
    weights: Weights
    first_weights: Weights  # before the first step


def accounts(found: Audited, model: Path, s: Settings, *, with_critic: bool) -> Iterator[Account]:
    """Return the referee's results for the run's steps, from only the run's model folder and its responses."""
    policy, reference = (AutoModelForCausalLM.from_pretrained(model).eval() for _ in range(2))
    learners = {"actor": Learner(policy, LR, s)}
    if with_critic:
        body = AutoModel.from_pretrained(model).eval()
        learners["critic"] = Learner(Critic(body, body.config.hidden_size), LR, s)
    first_weights = weights_of(learners)
    for step in STEPS:
        responses = found.responses(step)
        if with_critic:
            reports = ppo_step(learners["actor"], learners["critic"], reference, responses)
        else:
            reports = (grpo_step(learners["actor"], reference, responses),)
        yield Account(responses, dict(zip(learners, reports, strict=True)), weights_of(learners), first_weights)


def weights_of(learners: Mapping[str, Learner]) -> Weights:
    return {
        role: {name.removeprefix("body."): w.clone() for name, w in learner.model.state_dict().items()}
        for role, learner in learners.items()
    }


@dataclass(frozen=True, slots=True)
class Case:
    """A run, and the referee's accounts of its steps."""

    name: str
    found: Audited
    accounts: dict[int, Account]
    model: Path

    def accounts_with(self, **changes: Any) -> dict[int, Account]:
        """Return the results of a referee with other settings."""
        settings = replace(RUNS[self.name][1], **changes)
        steps = accounts(self.found, self.model, settings, with_critic=self.name == "ppo")
        return dict(zip(STEPS, steps, strict=True))

    def weight_gap(self, step: int, account: Account) -> float:
        """Return the distance of the run's weights from the referee's, as a fraction of their change, for the role with
        the larger distance.
        """
        fractions = []
        for role, expected in account.weights.items():
            seen, first = self.found.weights(role, step), account.first_weights[role]
            assert set(seen) == set(expected)
            gap = torch.cat([(seen[name] - expected[name]).flatten() for name in seen])
            way = torch.cat([(seen[name] - first[name]).flatten() for name in seen])
            fractions.append(float(gap.norm() / way.norm()))
        return max(fractions)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Sequences of twenty tokens are too short to share: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=list(RUNS))
def case(
    request: pytest.FixtureRequest,
    arithmetic: Path,
    tmp_path_factory: pytest.TempPathFactory,
    ray_cluster: None,
    one_thread: None,
) -> Case:
    found = audited(arithmetic, tmp_path_factory.mktemp(request.param), RUNS[request.param][0])
    made = Case(request.param, found, {}, arithmetic / "model")
    return replace(made, accounts=made.accounts_with())


def test_log_probs_values_and_advantages_of_every_token_are_the_referees(case: Case) -> None:
    for (step, account), columns in zip(case.accounts.items(), case.found.columns, strict=True):
        expected = set(OF_A_RESPONSE) - ({"values", "returns"} if case.name == "grpo" else set())
        assert set(columns.columns) == expected
        for column in expected:
            seen = torch.from_numpy(columns.ragged(column).values)
            reported = torch.cat([getattr(response, OF_A_RESPONSE[column]) for response in account.responses])
            assert float((seen - reported).abs().max()) <= TOLERANCE, f"{column}, step {step}"


def test_losses_and_gradient_norms_are_the_referees(case: Case) -> None:
    for step, account in case.accounts.items():
        metrics = case.found.run.metrics[step]
        for role, report in account.reports.items():
            seen = {name: metrics[METRICS[role, name]] for name in report}
            assert seen == pytest.approx(report, rel=0, abs=TOLERANCE), f"{role}, step {step}"


def test_the_weights_after_each_step_are_the_referees(case: Case) -> None:
    for step, account in case.accounts.items():
        assert case.weight_gap(step, account) <= TOLERANCE, f"step {step}"


def test_every_rule_acts_in_the_runs(case: Case) -> None:
    """A rule that never acted would not have been compared."""
    for step, metrics in case.found.run.metrics.items():
        assert 0.1 < metrics["actor/clip_frac"] < 0.9 and metrics["actor/grad_norm"] > SETTINGS.max_grad_norm
        assert len({len(response.tokens) for response in case.accounts[step].responses}) >= 3
        if case.name == "grpo":
            assert metrics["actor/kl_loss"] > 1e-5
        else:
            assert metrics["critic/value_clip_frac"] > 0.05 and metrics["critic/grad_norm"] > SETTINGS.max_grad_norm
            assert step == 1 or abs(metrics["reward/kl_penalty_mean"]) > 1e-3


@pytest.mark.nightly
def test_a_referee_with_another_rule_disagrees(case: Case) -> None:
    for name, other in OTHER_RULES[case.name].items():
        account = case.accounts_with(**{name: other})[STEPS[-1]]
        gap = case.weight_gap(STEPS[-1], account)
        assert gap > 100 * TOLERANCE, f"{name}={other} makes no difference"
