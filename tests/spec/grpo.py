"""GRPO and PPO in one file: read this first.

This is the algorithm and nothing else: plain PyTorch on models of transformers, one process, one sequence at a time; no
padding, no sharding, no engine, and not a line of the package that it is the referee of. It is slow, and every line of
it is somebody's formula. ``tests/e2e/test_referee.py`` takes the responses of real runs and holds the runs' log-probs,
advantages, losses, gradient norms and weights against what this file makes of the same responses.

One step of either algorithm:

1. *Rollout*: the policy answers each prompt of a batch several times. The answers to one prompt are a *group*.
2. *Score*: a function says how good each response is.
3. *Advantage*: how much better was it than expected? GRPO expects the mean score of the group. PPO expects what a
   second model, the *critic*, has learnt to predict at each token.
4. *Update*: make tokens of positive advantage likelier and the others less likely, in a few optimiser steps that
   together must not take the policy far from the one that wrote the responses.

Training is ``grpo_step(actor, reference, rollout(actor.model, prompts, ...))`` again and again.

Shapes: T tokens of a response, V vocabulary, H hidden. A batch is a list of responses, ordered by group, and what
belongs to the tokens of a response is a separate tensor [T]. Log-probs, entropy and KL are in nats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(kw_only=True)
class Settings:
    """Every number that the two algorithms know."""

    mini_batch_size: int  # prompts per update
    epochs: int = 1  # updates that see the same response
    clip_low: float = 0.2  # the ratio of new to old probability counts down to 1 - this
    clip_high: float = 0.2  # and up to 1 + this
    mean_over: str = "tokens"  # or "responses", each of which then weighs the same, whatever its length
    entropy_coef: float = 0.0
    kl_loss_coef: float = 0.0  # KL(policy, reference) as a term of the loss, which is GRPO's way
    kl_reward_coef: float = 0.0  # or taken from each token's reward, which is PPO's way
    gamma: float = 1.0  # discount per token (PPO)
    lam: float = 1.0  # 1 trusts the rewards alone, 0 the critic's next value (PPO)
    value_clip: float = 0.2  # the critic's values may move this far per step (PPO)
    temperature: float = 1.0  # of the rollout, and therefore of every log-prob
    weight_decay: float = 0.0
    adam_eps: float = 1e-8
    max_grad_norm: float = 1.0


@dataclass(kw_only=True)
class Response:
    """One answer to a prompt. A step fills in the tensors, [T] each, before it learns from them."""

    prompt: list[int]
    tokens: list[int]  # with the end token, where the policy chose it
    score: float
    group: int  # number of the prompt in the batch, from 0
    old_log_probs: Tensor = field(init=False)  # of the policy that wrote the response
    ref_log_probs: Tensor = field(init=False)  # of the reference: the policy that training began with
    old_values: Tensor = field(init=False)  # what the critic expected before each token (PPO)
    returns: Tensor = field(init=False)  # what it should have expected (PPO)
    advantages: Tensor = field(init=False)


Loss = Callable[[nn.Module, Sequence[Response], Settings], Tensor]
Report = dict[str, float]  # "loss" and "grad_norm"

# Rollout and scores


@torch.no_grad()
def rollout(
    policy: nn.Module,
    prompts: list[list[int]],
    score: Callable[[list[int], list[int]], float],
    *,
    n: int,
    max_tokens: int,
    end: int,
    temperature: float,
) -> list[Response]:
    """``n`` responses to each prompt, token by token from the policy's own distribution, with their scores."""
    responses = []
    for group, prompt in enumerate(prompts):
        for _ in range(n):
            tokens: list[int] = []
            while len(tokens) < max_tokens and end not in tokens:
                logits = policy(torch.tensor([prompt + tokens])).logits[0, -1]
                tokens.append(int(torch.multinomial((logits / temperature).softmax(-1), 1)))
            responses.append(Response(prompt=prompt, tokens=tokens, score=score(prompt, tokens), group=group))
    return responses


# What the models say of a response


def log_probs_and_entropy(policy: nn.Module, r: Response, temperature: float) -> tuple[Tensor, Tensor]:
    """[T] log pi(token | all before it), and [T] the entropy of the distribution that the token was drawn from."""
    logits = policy(torch.tensor([r.prompt + r.tokens])).logits[0]  # row i predicts token i + 1
    log_pi = (logits[len(r.prompt) - 1 : -1] / temperature).log_softmax(-1)  # [T, V]
    return log_pi[range(len(r.tokens)), r.tokens], -(log_pi.exp() * log_pi).sum(-1)


class Critic(nn.Module):
    """A language model without its vocabulary, and one linear output: the score to be expected before each token."""

    def __init__(self, body: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.body, self.value_head = body, nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)  # a fresh critic claims nothing
        nn.init.zeros_(self.value_head.bias)

    def forward(self, r: Response) -> Tensor:
        hidden = self.body(torch.tensor([r.prompt + r.tokens])).last_hidden_state[0]  # row i has seen token i
        return self.value_head(hidden[len(r.prompt) - 1 : -1])[:, 0]  # [T, H] -> [T]


# Advantages


def grpo_advantages(responses: Sequence[Response]) -> None:
    """A = (R - mean) / std over the scores R of the group, the same for every token (2402.03300, section 4.1.2).

    The deviation has n - 1 in its denominator, and a millionth is added to it: equal scores give no advantage.
    """
    for r in responses:
        scores = torch.tensor([other.score for other in responses if other.group == r.group]).double()
        advantage = (r.score - scores.mean()) / (scores.std() + 1e-6)
        r.advantages = torch.full([len(r.tokens)], advantage.item())


def gae(responses: Sequence[Response], s: Settings) -> None:
    """Generalised advantage estimation (1506.02438, equation 16), then mean 0 and variance 1 over the batch's tokens.

    delta_t = r_t + gamma V_{t+1} - V_t is how much better things went at token t than the critic had expected, and
    A_t = delta_t + gamma lam A_{t+1}. Nothing follows the last token. The critic is to learn A_t + V_t.

    A token's reward r_t is minus its share of the KL, log pi_old - log pi_ref (1909.08593, equation 2); the last
    token's has the score besides.
    """
    for r in responses:
        rewards = -s.kl_reward_coef * (r.old_log_probs - r.ref_log_probs)
        rewards[-1] += r.score
        r.advantages = torch.zeros_like(r.old_values)
        next_value = next_advantage = 0.0
        for t in reversed(range(len(r.tokens))):
            delta = rewards[t] + s.gamma * next_value - r.old_values[t]
            r.advantages[t] = next_advantage = delta + s.gamma * s.lam * next_advantage
            next_value = r.old_values[t]
        r.returns = r.advantages + r.old_values
    all_tokens = torch.cat([r.advantages for r in responses])
    for r in responses:
        r.advantages = (r.advantages - all_tokens.mean()) / (all_tokens.var() + 1e-8).sqrt()


# Losses of a mini-batch


def policy_loss(policy: nn.Module, batch: Sequence[Response], s: Settings) -> Tensor:
    """Return the clipped surrogate, less entropy (1707.06347, equations 7 and 9), plus KL (2402.03300, equation 3).

    With rho = pi / pi_old the loss of a token is max(-A rho, -A clip(rho)): beyond the clip it is constant, with no
    gradient. The KL is estimated by exp(-d) - 1 + d with d = log pi - log pi_ref, never negative (2402.03300,
    equation 4).
    """
    token_losses = []
    for r in batch:
        log_probs, entropy = log_probs_and_entropy(policy, r, s.temperature)
        rho = (log_probs - r.old_log_probs).exp()
        surrogate = torch.maximum(-r.advantages * rho, -r.advantages * rho.clamp(1 - s.clip_low, 1 + s.clip_high))
        d = log_probs - r.ref_log_probs
        token_losses.append(surrogate + s.kl_loss_coef * (torch.expm1(-d) + d) - s.entropy_coef * entropy)
    if s.mean_over == "tokens":  # DAPO, 2503.14476, equation 12
        return torch.cat(token_losses).mean()
    return torch.stack([losses.mean() for losses in token_losses]).mean()  # GRPO, 2402.03300, equation 3


def value_loss(critic: nn.Module, batch: Sequence[Response], s: Settings) -> Tensor:
    """Half the squared error, of V or of V held near its old value, whichever is worse (github.com/openai/baselines,
    ppo2/model.py; in no paper)."""
    token_losses = []
    for r in batch:
        values = critic(r)
        held = r.old_values + (values - r.old_values).clamp(-s.value_clip, s.value_clip)
        token_losses.append(0.5 * torch.maximum((values - r.returns) ** 2, (held - r.returns) ** 2))
    return torch.cat(token_losses).mean()


# Updates


class Learner:
    """A model and its optimiser, AdamW (1711.05101)."""

    def __init__(self, model: nn.Module, lr: float, s: Settings) -> None:
        self.model, self.settings = model, s
        matrices = [p for p in model.parameters() if p.ndim >= 2]
        others = [p for p in model.parameters() if p.ndim < 2]  # norms and biases, which do not decay
        groups = [{"params": matrices, "weight_decay": s.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=lr, eps=s.adam_eps)

    def learn(self, responses: Sequence[Response], loss_of: Loss) -> Report:
        """One update per mini-batch and epoch; returns the means, over the updates, of loss and gradient norm."""
        s, losses, norms = self.settings, [], []
        for _ in range(s.epochs):
            for number in range(responses[-1].group // s.mini_batch_size + 1):
                loss = loss_of(self.model, [r for r in responses if r.group // s.mini_batch_size == number], s)
                self.optimizer.zero_grad()
                loss.backward()
                norm = torch.cat([p.grad.flatten() for p in self.model.parameters()]).double().norm()
                if norm > s.max_grad_norm:  # 1211.5063, algorithm 1
                    for p in self.model.parameters():
                        p.grad *= s.max_grad_norm / norm
                self.optimizer.step()
                losses.append(loss.item())
                norms.append(norm.item())
        return {"loss": sum(losses) / len(losses), "grad_norm": sum(norms) / len(norms)}


# The two algorithms


def grpo_step(actor: Learner, reference: nn.Module, responses: Sequence[Response]) -> Report:
    """Group Relative Policy Optimisation (2402.03300, algorithm 1): a response is compared with its siblings."""
    window(actor.model, reference, responses, actor.settings)
    grpo_advantages(responses)
    return actor.learn(responses, policy_loss)


def ppo_step(
    actor: Learner, critic: Learner, reference: nn.Module, responses: Sequence[Response]
) -> tuple[Report, Report]:
    """Proximal Policy Optimisation (1707.06347, algorithm 1): a token is compared with what the critic expected."""
    window(actor.model, reference, responses, actor.settings)
    with torch.no_grad():
        for r in responses:
            r.old_values = critic.model(r)
    gae(responses, actor.settings)
    return actor.learn(responses, policy_loss), critic.learn(responses, value_loss)


@torch.no_grad()
def window(policy: nn.Module, reference: nn.Module, responses: Sequence[Response], s: Settings) -> None:
    """Note how likely each token was to the policy that wrote it, before the updates, and to the reference."""
    for r in responses:
        r.old_log_probs, _ = log_probs_and_entropy(policy, r, s.temperature)
        r.ref_log_probs, _ = log_probs_and_entropy(reference, r, s.temperature)
