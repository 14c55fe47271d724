"""Every preset, and every way of shaping a batch, for a few steps of real runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests._tiers import slow_but
from tests.e2e.conftest import ROOT, Run, train
from verl_like.telemetry.metrics import METRICS

pytestmark = pytest.mark.usefixtures("ray_cluster")
PRESETS = sorted(path.stem for path in (ROOT / "conf/algorithm").glob("*.yaml"))
# What an algorithm computes does not depend on the engine, and transformers starts in half the time.
PLAIN_ENGINE = "rollout=hf"
ON_VLLM = ("dapo", "ppo")
BY_DAY = {"dapo", "ppo", "reinforce_pp", "rloo"}  # with a critic, a reference, resampling; the others each night
MORE_PASSES = {
    "ppo": ["values", "update_critic"],
    "reinforce_pp": ["ref_log_probs"],
    "reinforce_pp_baseline": ["ref_log_probs"],
    "a_star_po": ["ref_log_probs"],
    "distill": ["ref_log_probs"],
}
NUM_RESPONSES = 32  # of a step
EXTRA = {"dapo": ["algorithm.overlong_buffer_len=3"]}  # what a preset leaves to the user
OF_TURNS = ("gigpo", "turn_credit")
ONE_TURN = """
class Once:
    state_key = "start"

    def reset(self, **row):
        return None

    def step(self, text):
        return "", 0.0, True
"""

WITH_VALUE = """
def with_value(data_source, solution_str, ground_truth, extra_info):
    return {"score": solution_str.count("7") / max(len(solution_str), 1), "v_star": 0.05}
"""


def assert_trained(run: Run, steps: int = 3) -> None:
    assert sorted(run.metrics) == list(range(1, steps + 1))
    for metrics in run.metrics.values():
        assert all(np.isfinite(value) for value in metrics.values())
        assert metrics["actor/grad_norm"] > 0 and metrics["actor/skipped_updates"] == 0
        booked = sum(metrics[f"prompts/{outcome}"] for outcome in ("trained", "filtered", "failed"))
        assert metrics["prompts/drawn"] == booked > 0
        unknown = [name for name in metrics if name != "step" and not any(metric.matches(name) for metric in METRICS)]
        assert not unknown, "every metric is in the table"


def with_value(folder: Path) -> list[str]:
    """Return the option of a reward that reports the value of a prompt."""
    (folder / "value.py").write_text(WITH_VALUE)
    return [f"reward.function={folder}/value.py:with_value"]


def with_environment(arithmetic: Path, folder: Path) -> list[str]:
    """Return the options of an environment of one turn, and of a model with a chat template."""
    model = shutil.copytree(arithmetic / "model", folder / "model")
    (model / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    (folder / "once.py").write_text(ONE_TURN)
    named = f"environment.path={folder}/once.py:Once", "environment.max_turns=1"
    return [f"model.path={model}", "data.apply_chat_template=true", *named]


@pytest.mark.parametrize(
    "preset", slow_but({"grpo"}, ((preset, (preset,)) for preset in PRESETS), nightly={*PRESETS} - {"grpo"} - BY_DAY)
)
def test_a_preset_trains_without_an_unused_pass(preset: str, arithmetic: Path, teacher: Path, tmp_path: Path) -> None:
    """Two updates a step, so that the second one's ratios are not 1, and old log-probs are read."""
    extra = EXTRA.get(preset, []) if preset not in OF_TURNS else with_environment(arithmetic, tmp_path)
    if preset == "a_star_po":
        extra = with_value(tmp_path)
    if preset == "distill":
        extra = [f"ref.path={teacher}"]
    run = train(
        arithmetic,
        tmp_path,
        f"algorithm={preset}",
        "actor.mini_batch_size=4",
        "trainer.total_training_steps=3",
        "cluster.workers_per_node=1",
        "model.share_prompts=false",
        *([] if preset in ON_VLLM else [PLAIN_ENGINE]),
        *extra,
    )
    assert_trained(run)
    passes = {"old_log_probs", "update_actor", *MORE_PASSES.get(preset, [])}
    for metrics in run.metrics.values():
        all_once = metrics["perf/tokens"] - NUM_RESPONSES  # the last token of each predicts nothing
        found = {name.removeprefix("tokens/"): n for name, n in metrics.items() if name.startswith("tokens/")}
        assert found == dict.fromkeys(passes, all_once)


# What each way shows in the metrics; nothing does of resampling, which tests/unit/test_trainer_shaping.py proves.
# The two that compare or use the engine's log-probs run on vLLM.
SHAPING: dict[str, tuple[list[str], Callable[[dict[str, float]], bool] | None]] = {
    "filtered-groups": (
        ["algorithm.filter_groups=true", PLAIN_ENGINE],
        lambda m: 0 < m["rollout/signal_frac"] <= 1 and m["prompts/drawn"] == 8 * m["rollout/num_batches"],
    ),
    "masked-overlong": (
        ["algorithm.mask_overlong=true", "data.max_response_length=3", "rollout.n=16", PLAIN_ENGINE],
        lambda m: 0 < m["rollout/length_finish_frac"] < 1,
    ),
    "resampled": (["algorithm.pf_ppo=pow", PLAIN_ENGINE], None),
    "clipped-scaled-penalised": (
        ["algorithm.reward_clip=0.1", "algorithm.reward_scale=0.5", "algorithm.overlong_buffer_len=3", PLAIN_ENGINE],
        lambda m: m["reward/shaped_mean"] < 0.05,
    ),
    "adaptive-kl": (
        ["algorithm.kl_coef=0.01", "algorithm.kl_target=0.1", "algorithm.kl_horizon=1000", PLAIN_ENGINE],
        lambda m: m["reward/kl_coef"] == 0.01,
    ),
    "corrected-sequences": (
        [
            "algorithm.rollout_correction.min_gap=0",
            "algorithm.rollout_correction.level=sequence",
            "algorithm.rollout_correction.batch_normalize=true",
            "algorithm.rollout_correction.veto_threshold=1e-4",
        ],
        lambda m: m["actor/is_corrected"] == 1 and abs(m["actor/correction_weight_mean"] - 1) < 1e-3,
    ),
    "masked-and-averaged-by-prompt": (
        [
            "algorithm.top_entropy_quantile=0.5",
            "actor.off_policy_mask_threshold=1e-6",
            "actor.rollout_kl_coef=0.01",
            "actor.kl_loss_coef=0.01",
            "actor.weigh_kl_by_ratio=true",
            "actor.loss_aggregation=prompt-mean",
            "actor.mini_batch_size=4",
        ],
        lambda m: (
            0.3 < m["actor/entropy_masked_frac"] < 0.6
            and 0 < m["actor/off_policy_masked_frac"] < 1
            and m["actor/rollout_kl_loss"] > 0
        ),
    ),
    "engine-log-probs": (
        ["actor.use_rollout_log_probs=true"],
        lambda m: "time/old_log_probs_s" not in m and m["actor/is_corrected"] == 0,
    ),
}


@pytest.mark.parametrize(("overrides", "shows"), slow_but({"clipped-scaled-penalised"}, SHAPING.items()))
def test_a_shaped_batch_trains(
    overrides: list[str], shows: Callable[[dict[str, float]], bool] | None, arithmetic: Path, tmp_path: Path
) -> None:
    run = train(
        arithmetic,
        tmp_path,
        "actor.mini_batch_size=4",
        "trainer.total_training_steps=2",
        "cluster.workers_per_node=1",
        *overrides,
    )
    assert_trained(run, steps=2)
    assert shows is None or shows(run.metrics[1]), run.metrics[1]
    if "algorithm.kl_target=0.1" in overrides:
        assert run.metrics[2]["reward/kl_coef"] < 0.01, "the first step's KL is 0, below the target"


OWN = """
import torch

from verl_like.algorithms.advantages import Estimator
from verl_like.algorithms.types import Advantages, TokenLosses


def less_baseline(inputs, config):
    advantages = (inputs.rewards.sum(-1) - inputs.baseline_rewards)[:, None] * inputs.response_mask
    return Advantages(advantages=advantages, returns=advantages)


mine = Estimator(fn=less_baseline, needs=frozenset({"baseline_rewards"}))


def squared(inputs, config):
    ratio = (inputs.log_probs - inputs.old_log_probs).exp()
    return TokenLosses(losses=-inputs.advantages * ratio, metrics={"ratio_mean": torch.full_like(ratio, 7.0)})
"""


@pytest.mark.slow
def test_a_users_own_estimator_and_loss_reach_the_workers_from_a_file(arithmetic: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    run = train(
        arithmetic,
        tmp_path,
        f"algorithm.adv_estimator={tmp_path}/own.py:mine",
        f"actor.policy_loss={tmp_path}/own.py:squared",
        "trainer.total_training_steps=2",
        "actor.max_tokens_per_micro_batch=100000",
        PLAIN_ENGINE,
    )
    assert_trained(run, steps=2)
    assert run.metrics[1]["actor/ratio_mean"] == pytest.approx(7.0), "the mean over the tokens of both ranks"


@pytest.mark.slow
def test_skipping_rows_without_advantage_gives_the_same_weights(arithmetic: Path, tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text(
        "def half(data_source, solution_str, ground_truth, extra_info):\n"
        "    return float(solution_str.count('7')) if int(ground_truth) % 2 else 0.0\n"
    )
    overrides = [
        f"reward.function={reward}:half",
        "trainer.total_training_steps=2",
        "actor.mini_batch_size=2",
        PLAIN_ENGINE,
    ]
    every = train(arithmetic, tmp_path / "every", *overrides)
    skipping = train(arithmetic, tmp_path / "skipping", *overrides, "actor.skip_zero_advantages=true")
    for step in (1, 2):
        assert skipping.metrics[step]["actor/grad_norm"] == pytest.approx(
            every.metrics[step]["actor/grad_norm"], rel=1e-4
        )
    own, peer = (load_file(run.folder / "model/model.safetensors") for run in (skipping, every))
    assert all(torch.allclose(own[name], peer[name], atol=1e-5) for name in peer)
    assert skipping.metrics[2]["prompts/filtered"] > 0 == every.metrics[2]["prompts/filtered"]
