"""Advice on runs: what is said first of a run that is ill in one way, and that nothing is said of a healthy one."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit._ill_runs import (
    ASYNC,
    CRITIC,
    DPO,
    EPISODES,
    ROWS,
    SFT,
    TRAIN,
    config_of,
    rising,
    series_of,
    validations,
    view_of,
)
from verl_like.checks.rules import contradictions
from verl_like.config.compose import compose
from verl_like.config.options import option_at, options, sections, value_of, wrong_values
from verl_like.config.schema import Config
from verl_like.report.advice import RULES, Advisory, RunView, advisories, markdown
from verl_like.report.advice.__main__ import text
from verl_like.telemetry.metrics import check_name

NAN = math.nan
FALLEN = {"reward/score_mean": lambda step: rising(step) if step < 150 else 0.1}
NOISE = {"reward/score_mean": 0.3, "rollout/entropy_mean": lambda step: 0.6 + 0.02 * step}
LEDGER = {
    f"worker rank {rank}": {"build": 50.0 * (rank == 0), "rollout": 1300.0 if rank == 3 else 800.0, "wait/peer": 9.0}
    for rank in range(4)
}
ENGINES = {"trainer__schedule": "async", "cluster__placement": {"trainer": 1, "rollout": 1}}
GAME = {"environment__path": "game.py:Game"}
HANG = "worker rank 1 (pid 7 on a) hangs in stage 'rollout', entered at 12:00:00: silent for 300 s."

# Ill in one way -> title of the first advice, and what its text contains.
ILL: dict[str, tuple[RunView, str, list[str]]] = {
    # ---- alarms
    "a process hangs": (view_of(num_stalls=1, first_stall=HANG), "A process hangs", [HANG, "trainer.on_stall"]),
    "silent for hours": (
        view_of(status="running", silent_s=7200.0, noise=0.0),
        "The run is stuck in a step",
        [
            "nothing for 2.0 h since step 200",
            "the median of time/step_s is 10.0 s",
            "trainer.stage_timeout_s (now 1800)",
        ],
    ),
    "a step takes an hour": (
        view_of({"time/step_s": lambda step: 3600.0 if step == 200 else 10.0}, status="running", silent_s=3.0),
        "The run is stuck in a step",
        [" min for step 200"],
    ),
    "killed": (
        view_of(status="stopped", steps=50, total_steps=200),
        "The run ended early",
        ["after step 50 of 200", "trainer.save_freq (now 0)"],
    ),
    "died at once": (
        RunView(series={}, status="stopped", config=Config()),
        "The run ended early",
        ["before its first step"],
    ),
    "every reward failed": (
        RunView(series={}, status="stopped", config=Config(), num_failed_samples=512),
        "The run ended early",
        ["512 samples without a score", "reward.max_failure_frac (now 0.5)"],
    ),
    "skipped updates": (
        view_of({"actor/skipped_updates": lambda step: float(step in (70, 71))}),
        "Numbers are not finite",
        ["actor/skipped_updates counts 2 updates", "first in step 70", "actor.optim.lr (now 1e-06)"],
    ),
    "one NaN": (
        view_of({"actor/loss": lambda step: NAN if step == 33 else 0.01}),
        "Numbers are not finite",
        ["actor/loss is not a finite number in 1 step, step 33"],
    ),
    "a loss that became NaN": (
        view_of({"sft/loss": lambda step: NAN if step > 100 else 2.0}, shapes=SFT),
        "Numbers are not finite",
        ["sft/loss is not a finite number in 100 steps, the first is step 101"],
    ),
    "rewards time out": (
        view_of({"reward/num_failed": 30.0, "reward/num_timeout": 28.0, "reward/num_error": 2.0}, noise=0.0),
        "Samples get no score",
        ["12 % of samples", "most of them timeouts (reward/num_timeout)", "reward.timeout_s (now 10)"],
    ),
    "rewards failed early": (
        view_of({"reward/num_failed": lambda step: 200.0 * (step < 60), "reward/num_error": 60.0}, noise=0.0),
        "Samples get no score",
        ["23 % of samples", "errors", "correct the reward function"],
    ),
    "environments fail": (
        view_of(
            {"env/failures": 40.0, "reward/num_failed": 40.0}, shapes=EPISODES, noise=0.0, config=config_of(**GAME)
        ),
        "Environments fail",
        ["16 % of episodes", "environment.call_timeout_s (now 30)"],
    ),
    "weights of the engine differ": (
        view_of({"rollout/log_prob_diff_mean": lambda step: 0.01 if step < 100 else 0.4}, noise=0.0),
        "Engine and trainer differ",
        ["rollout/log_prob_diff_mean is 0.4", "was 0.01 before", "rollout.sync_checksum=true"],
    ),
    "a gap from the start": (
        view_of({"rollout/log_prob_diff_mean": 0.3}, steps=12),
        "Engine and trainer differ",
        ["is 0.3"],
    ),
    "a gap of old weights": (
        view_of({"rollout/log_prob_diff_mean": 0.6}, shapes=ASYNC, config=config_of(**ENGINES)),
        "Engine and trainer differ",
        ["lower trainer.max_staleness (now 1)"],
    ),
    "gradients explode": (
        view_of({"actor/grad_norm": lambda step: 40.0 if step > 150 and step % 2 else 0.6}),
        "Gradients explode",
        ["above 10 in 10 of 20 steps", "actor.optim.max_grad_norm (now 1)"],
    ),
    "the policy jumps": (
        view_of({"actor/ppo_kl": 0.4}, noise=0.0),
        "The policy jumps",
        ["actor/ppo_kl is 0.4", "0.01 is usual"],
    ),
    "most tokens are dropped": (
        view_of(
            {"actor/correction_ess_frac": 0.3, "rollout/staleness_mean": 3.0},
            shapes=ASYNC,
            noise=0.0,
            config=config_of(**ENGINES),
        ),
        "Most responses are too far off policy",
        ["weighs only as much as 30 % of its tokens", "3.0 updates old", "trainer.max_staleness"],
    ),
    "the score collapses": (
        view_of(FALLEN),
        "The score collapsed",
        ["The score has collapsed: reward/score_mean is 0.1", "actor.optim.lr"],
    ),
    "the entropy collapses": (
        view_of({"reward/score_mean": 0.4, "rollout/entropy_mean": lambda step: 0.6 * math.exp(-step / 20)}),
        "The entropy collapsed",
        ["rollout/entropy_mean is ", "actor.clip_ratio_high", "actor.entropy_coef"],
    ),
    "noise": (
        view_of(NOISE, config=config_of(actor__entropy_coef=0.01)),
        "Responses turn into noise",
        ["was 0.7", "Lower actor.entropy_coef (now 0.01) or actor.optim.lr (now 1e-06), or add"],
    ),
    "KL without a gain": (
        view_of({"reward/score_mean": 0.5, "actor/kl_loss": lambda step: 0.002 * step}, noise=0.0),
        "The KL rises faster than the score",
        ["actor/kl_loss is 0.391 over steps 191 to 200", "actor.kl_loss_coef"],
    ),
    "KL without a gain since the middle": (
        view_of(
            {
                "reward/score_mean": lambda step: min(0.2 + step / 100, 0.6),
                "reward/kl_penalty_mean": lambda step: 0.01 * step * 200 / 500,
                "actor/kl_loss": None,
            },
            config=config_of(algorithm__kl_coef=0.01),
            noise=0.0,
        ),
        "The KL rises faster than the score",
        ["reward/kl_penalty_mean", "algorithm.kl_coef (now 0.01)"],
    ),
    "overfitting to the reward": (
        view_of(more=validations([0.2, 0.5, 0.55, 0.55, 0.3, 0.2])),
        "The validation falls",
        ["val/mean@1 fell from 0.55 at step 80 to 0.2 at step 200", "reward/score_mean did not fall", "kl_loss_coef"],
    ),
    "worse than before training": (
        view_of({"reward/score_mean": 0.05}, steps=60, more=validations([0.35, 0.01, 0.0], every=30)),
        "The validation falls",
        ["fell from 0.35 at step 0 to 0 at step 60"],
    ),
    "a loss that diverges": (
        view_of({"dpo/loss": lambda step: 0.69 + 0.005 * step}, shapes=DPO),
        "The loss rises",
        ["dpo/loss is 1.6", "actor.optim.lr"],
    ),
    "lengths explode": (
        view_of({"rollout/response_tokens_mean": lambda step: 200 + 5.0 * step, "reward/score_mean": 0.5}, noise=0.0),
        "Responses get longer, not better",
        ["rollout/response_tokens_mean is 1,178 over", "algorithm.overlong_buffer_len"],
    ),
    "all scores are 0": (
        view_of({"reward/score_mean": 0.0, "reward/score_max": 0.0, "rollout/signal_frac": 0.0}, steps=7),
        "All scores are equal",
        [
            "Every response got the score 0 (reward/score_mean) over steps 1 to 7",
            "too hard or too easy",
            "data.sampler=curriculum",
        ],
    ),
    "all scores are 0 in the end": (
        view_of(
            {
                "reward/score_mean": lambda step: 0.02 if step < 60 else 0.0,
                "reward/score_max": lambda step: float(step < 60),
            }
        ),
        "All scores are equal",
        ["Single responses got 1 before", "actor.optim.lr (now 1e-06)"],
    ),
    "all scores were always 1": (
        view_of({"reward/score_mean": 1.0, "reward/score_min": 1.0, "rollout/signal_frac": 0.0}),
        "All scores are equal",
        ["score 1 ", "try another reward.function"],
    ),
    "no group has a signal": (
        view_of({"reward/score_mean": 0.01, "rollout/signal_frac": 0.03}, noise=0.0),
        "Hardly any group carries a signal",
        ["97 % of groups carry no signal (rollout/signal_frac is 0.03", "easier data.train_files"],
    ),
    "memory leaks": (
        view_of({"memory/rss_gib": lambda step: 2.0 + 0.01 * step}, noise=0.005),
        "Memory leaks",
        ["memory/rss_gib is", "MiB per step", "trainer.max_restarts"],
    ),
    "references leak": (
        view_of({"store/live_references": lambda step: 5.0 + step}),
        "Object references leak",
        ["store/live_references is ", "cluster.object_store_memory_gib (now 1)"],
    ),
    # ---- tuning
    "some groups have no signal": (
        view_of({"rollout/signal_frac": 0.59}, noise=0.0),
        "Many groups carry no signal",
        ["41 % of groups carry no signal", "data.sampler=curriculum or algorithm.filter_groups=true. "],
    ),
    "many batches": (
        view_of(
            {"rollout/num_batches": 4.0, "rollout/signal_frac": 0.3}, config=config_of(algorithm__filter_groups=True)
        ),
        "Many batches are drawn for one",
        ["rollout/num_batches is ", "data.sampler=curriculum"],
    ),
    "a useless critic": (
        view_of(
            {"critic/explained_variance": -0.3},
            noise=0.0,
            shapes=CRITIC,
            config=config_of(algorithm__adv_estimator="gae"),
        ),
        "The critic explains nothing",
        ["critic/explained_variance is -0.3", "critic.optim.lr (now 1e-05)"],
    ),
    "clipping": (
        view_of({"actor/clip_frac": 0.45}, noise=0.0),
        "Many tokens are clipped",
        ["45 %", "actor.clip_ratio_high"],
    ),
    "cut off": (
        view_of({"rollout/length_finish_frac": 0.31}, noise=0.0),
        "Responses are cut off",
        ["31 % of responses", "data.max_response_length (now 512)"],
    ),
    "overfitting to given rows": (
        view_of(shapes=SFT, more=validations([2.5, 1.8, 1.5, 1.6, 1.8, 2.0], metric="val/loss")),
        "The held-out loss rises",
        ["val/loss is 2 at step 200, and was 1.5 at step 80"],
    ),
    "a bug of a grader": (
        view_of({"reward/unreadable": lambda step: float(step == 90)}),
        "A grader fails",
        ["1 response made", "reward/unreadable"],
    ),
    "unreadable calls": (
        view_of({"env/malformed_calls": 300.0}, shapes=EPISODES, config=config_of(**GAME)),
        "Tool calls cannot be read",
        ["tool calls could not be read", "environment.tool_parser (now auto)"],
    ),
    "some tokens are dropped": (
        view_of({"actor/correction_kept_frac": 0.8}, shapes=ASYNC, noise=0.0, config=config_of(**ENGINES)),
        "The rollout correction drops tokens",
        ["keeps only 80 % of its tokens", "actor/correction_kept_frac"],
    ),
    "old responses": (
        view_of(
            {"rollout/staleness_mean": 3.9, "time/rollout_s": 0.1},
            shapes=ASYNC,
            config=config_of(**ENGINES, trainer__max_staleness=4),
        ),
        "Responses are old",
        ["rollout/staleness_mean is 3.9", "trainer.max_staleness (now 4)"],
    ),
    "an idle trainer": (
        view_of({"time/rollout_s": 7.0}, shapes=ASYNC, noise=0.0, config=config_of(**ENGINES)),
        "The trainer waits for responses",
        ["70 % of a step", "cluster.placement"],
    ),
    "more memory than planned": (
        view_of(more={"memory/planned_gib": {1: 2.0}, "memory/peak_gib": {1: 2.1, 2: 2.6, 3: 2.0}}),
        "Memory exceeds the plan",
        ["2.60 GiB", "expected 2.00", "actor.max_tokens_per_micro_batch", "rollout.kv_cache_memory_gib (now 0.25)"],
    ),
    "more GPU memory than planned": (
        view_of(more={"memory/planned_gib": {1: 70.0}, "memory/device_peak_gib": {1: 78.0}, "memory/peak_gib": {1: 9}}),
        "Memory exceeds the plan",
        ["78.00 GiB (memory/device_peak_gib)", "rollout.gpu_memory_utilization (now auto)"],
    ),
    "spilling": (
        view_of({"store/spilled_bytes": lambda step: 2.0**30 if step > 195 else 0.0}),
        "The object store spills",
        ["wrote 5 GiB to disk", "cluster.object_store_memory_gib (now 1)"],
    ),
    "preemptions": (
        view_of({"rollout/preemptions": 20.0}),
        "The KV cache is too small",
        ["200 requests", "rollout.kv_cache_memory_gib (now 0.25)"],
    ),
    "large records": (
        view_of(records_gib=21.0, config=config_of(trainer__max_records_gib=0.0)),
        "Records have no limit",
        ["21.0 GiB", "trainer.max_records_gib=1.5"],
    ),
    "a slow rank": (
        view_of(ledger=LEDGER),
        "A rank is slow",
        ["rollout (time/rollout_s) waits for worker rank 3", "8.3 min", "rollout.dealing=queue"],
    ),
    "slow scoring": (
        view_of({"time/reward_wait_s": 4.0}, noise=0.0),
        "Scoring delays the step",
        ["40 % of a step", "reward.num_workers (now 1)"],
    ),
    "slow environments": (
        view_of({"env/wait_frac": 0.8, "time/rollout_s": 8.0}, shapes=EPISODES, noise=0.0, config=config_of(**GAME)),
        "Environments delay the rollout",
        ["80 % of their time", "trainer.schedule=async", "a pool rollout in cluster.placement"],
    ),
    "uneven tokens": (
        view_of({"balance/imbalance": 1.5}),
        "Tokens are spread unevenly",
        ["1.5", "sequence_parallel_size"],
    ),
    "a slow sync": (
        view_of({"time/sync_s": 3.0}, noise=0.0),
        "The weight sync is slow",
        ["30 %", "rollout.sync_bucket_mib"],
    ),
    "checkpoints": (
        view_of(more={"checkpoint/wait_s": dict.fromkeys(range(20, 201, 20), 60.0)}),
        "Checkpoints delay the run",
        ["10.0 min", "checkpoint/wait_s", "trainer.save_freq"],
    ),
    "validations": (
        view_of(more={"time/validation_s": dict.fromkeys(range(20, 201, 20), 120.0)}),
        "Validation takes much of the time",
        ["time/validation_s", "trainer.test_freq"],
    ),
    "slow steps": (
        view_of(
            {
                "time/step_s": lambda step: (190.0 + step / 20) if step % 50 == 0 else 10.0,
                "time/rollout_s": lambda step: (184.0 + step / 20) if step % 50 == 0 else 4.0,
            },
            noise=0.0,
        ),
        "Some steps are much slower",
        [
            "4 steps took more than 6 times the median",
            "step 200 with 3.3 min, of which time/rollout_s is 3.2 min",
            "profile",
        ],
    ),
}

HEALTHY: dict[str, RunView] = {
    "short and noisy": view_of(
        {"reward/score_mean": lambda step: (0.0, 0.3, 0.1, 0.5, 0.05, 0.2)[step % 6], "actor/grad_norm": 20.0},
        steps=8,
        noise=0.5,
        more=validations([0.3, 0.1], every=8),
    ),
    "one step": view_of(steps=1),
    "nothing yet": RunView(series={}, status="running", config=Config()),
    "long": view_of(steps=3000, more=validations([rising(step) for step in range(0, 3001, 40)])),
    "learnt": view_of(
        {
            "reward/score_mean": lambda step: rising(step, low=0.3, high=0.98, over=30),
            "rollout/entropy_mean": lambda step: 0.6 * math.exp(-step / 40),
            "rollout/signal_frac": lambda step: rising(step, low=0.9, high=0.1, over=40),
        }
    ),
    "solved": view_of(
        {
            "reward/score_mean": lambda step: min(0.2 + step / 50, 1.0),
            "reward/score_min": lambda step: float(step > 60),
            "rollout/signal_frac": lambda step: 0.9 if step < 50 else 0.0,
        },
        noise=0.0,
    ),
    "longer and better": view_of(
        {
            "rollout/response_tokens_mean": lambda step: 200 + 20.0 * step,
            "rollout/response_tokens_max": lambda step: 900 + 40.0 * step,
            "memory/rss_gib": lambda step: 2 + 0.01 * step,
            "actor/kl_loss": lambda step: 0.002 * step,
            "reward/score_mean": lambda step: 0.2 + 0.003 * step,
        }
    ),
    "asynchronous": view_of(shapes=ASYNC, config=config_of(trainer__schedule="async", trainer__max_staleness=2)),
    "one step off": view_of(
        {"rollout/staleness_mean": 1.0, "rollout/staleness_max": 1.0},
        shapes=ASYNC,
        config=config_of(trainer__schedule="one_step_off"),
    ),
    "episodes": view_of(shapes=EPISODES),
    "with a critic": view_of(shapes=CRITIC, config=config_of(algorithm__adv_estimator="gae", rollout__n=1)),
    "distilled": view_of(
        {"reward/score_mean": 0.0, "reward/score_max": 0.0, "rollout/signal_frac": 0.0},
        config=config_of(algorithm__distill_coef=1.0),
    ),
    "supervised": view_of(shapes=SFT, more=validations([2.5, 1.9, 1.6, 1.5, 1.45, 1.44], metric="val/loss")),
    "preferences": view_of(shapes=DPO),
    "resumed": view_of(start=120, status="running", silent_s=100.0),
    "recovered": view_of({"reward/score_mean": lambda step: 0.1 if 80 < step < 100 else 0.7}),
    "float32": view_of({"rollout/log_prob_diff_mean": lambda step: 1e-7 if step < 150 else 2e-6}),
    "sparse rewards": view_of(
        {"actor/grad_norm": lambda step: 0.02 if step < 150 else 2.0},
        more=validations([0.2, 0.5, 0.45, 0.55, 0.5, 0.6]),
    ),
    "an unreadable configuration": replace(view_of({"rollout/signal_frac": 0.0}), config=None),
    "within the plan": view_of(more={"memory/planned_gib": {1: 2.0}, "memory/peak_gib": {1: 2.1}}, records_gib=1.5),
    "even ranks": view_of(ledger={f"worker rank {rank}": {"rollout": 800.0 + rank} for rank in range(8)}),
}


@pytest.mark.parametrize("name", ILL)
def test_what_makes_a_run_ill_is_said_first(name: str) -> None:
    view, title, contained = ILL[name]
    found = advisories(view)
    assert [advice.title for advice in found][:1] == [title], found
    assert [words for words in contained if words not in found[0].text] == [], found[0].text


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of_a_healthy_run(name: str) -> None:
    assert advisories(HEALTHY[name]) == []


def test_every_rule_is_the_first_to_speak_for_some_run() -> None:
    assert {rule.title for rule in RULES} == {title for _, title, _ in ILL.values()}


def test_alarms_silence_tuning() -> None:
    levels = [advice.level for advice in advisories(view_of({"rollout/signal_frac": 0.5, "actor/clip_frac": 0.5}))]
    assert levels == ["tuning", "tuning"]
    ill = view_of({"rollout/signal_frac": 0.5, "actor/clip_frac": 0.5}, num_stalls=2)
    assert [(advice.level, advice.title) for advice in advisories(ill)] == [("alarm", "A process hangs")]


def test_causes_are_said_before_their_effects() -> None:
    view = view_of({**FALLEN, "actor/skipped_updates": lambda step: float(step > 150), "actor/loss": 0.5}, num_stalls=1)
    titles = [advice.title for advice in advisories(view)]
    assert titles == ["A process hangs", "Numbers are not finite", "The score collapsed"]


# Name, the configuration of the run, and the advice with and without knowledge of it.
ADVICE: list[tuple[str, Config, Advisory]] = [
    (name, view.config or Config(), advice)
    for name, (view, _, _) in ILL.items()
    for known in (view.config, None)
    for advice in advisories(replace(view, config=known))
]
OPTION = re.compile(rf"(?<![\w./])(?:{'|'.join(sections())})\.[a-z_0-9]+(?:\.[a-z_0-9]+)*")
METRIC = re.compile(r"(?<![\w./])[a-z]+/[a-z][a-z_@0-9]*")


def test_every_advice_names_an_option_that_exists() -> None:
    files = ("reward_failures.jsonl", "ledger.jsonl")
    for name, _, advice in ADVICE:
        named = [word for word in OPTION.findall(advice.text) if word not in files]
        assert named, (name, advice.text)
        assert [word for word in named if option_at(word) is None] == [], name


def test_every_metric_in_an_advice_is_in_the_table_of_metrics() -> None:
    folders = ("logs/", "samples/", "stalls/")
    for name, _, advice in ADVICE:
        of_text = [word for word in METRIC.findall(re.sub(r"`[^`]*`", "", advice.text)) if not word.startswith(folders)]
        assert not advice.metric or advice.metric in advice.text, name
        for metric in [*of_text, *([advice.metric] if advice.metric else [])]:
            check_name(metric)


def test_every_proposed_override_changes_something_and_is_refused_by_no_check() -> None:
    proposed = [(config, advice.knob) for _, config, advice in ADVICE if advice.knob is not None]
    assert len({override for _, override in proposed}) > 20
    for config, override in proposed:
        option = override.partition("=")[0]
        changed = continued(config, override)
        assert value_of(changed, option) != value_of(config, option), override
        assert [problem for problem in refusals(changed) if problem not in refusals(config)] == [], override


def continued(config: Config, override: str) -> Config:
    """Return the configuration of a run that is continued with an override."""
    of_run = {name: value_of(config, name) for name in options() if value_of(config, name) != value_of(Config(), name)}
    command = [f"{name}={json.dumps(value)}" for name, value in of_run.items()]
    return compose(None, [*command, override]).config


def refusals(config: Config) -> list[str]:
    return [*wrong_values(config).values(), *contradictions(config, num_devices=0)]


def test_a_restart_is_proposed_only_where_it_is_allowed() -> None:
    [first] = advisories(view_of(num_stalls=1))
    [then] = advisories(view_of(num_stalls=1, config=config_of(trainer__max_restarts=3)))
    assert (first.knob, then.knob) == ("trainer.max_restarts=3", "trainer.on_stall=restart")


def test_prompts_that_are_selected_otherwise_get_no_curriculum() -> None:
    silent = {"rollout/signal_frac": 0.5}
    for option, value in (("data__sampler", "mine.py:Mine"), ("data__train_weights", [0.5, 0.5])):
        [advice] = advisories(view_of(silent, config=config_of(**{option: value})))
        assert "curriculum" not in advice.text and advice.knob == "algorithm.filter_groups=true"


def test_a_deterministic_run_gets_no_queue() -> None:
    [advice] = advisories(view_of(ledger=LEDGER, config=config_of(trainer__deterministic=True)))
    assert advice.title == "A rank is slow" and advice.knob is None


def test_responses_are_at_least_as_old_as_batches_in_flight() -> None:
    old = {"rollout/staleness_mean": 3.9, "time/rollout_s": 0.1}
    config = config_of(**ENGINES, trainer__max_staleness=4, trainer__pipeline_depth=4)
    [advice] = advisories(view_of(old, shapes=ASYNC, config=config))
    assert advice.title == "Responses are old" and advice.knob is None


def test_a_long_warmup_of_the_critic_is_not_shortened() -> None:
    config = config_of(algorithm__adv_estimator="gae", critic__warmup_steps=40)
    [advice] = advisories(view_of({"critic/explained_variance": -0.3}, shapes=CRITIC, noise=0.0, config=config))
    assert advice.title == "The critic explains nothing" and advice.knob is None


def test_a_default_is_not_proposed_for_checkpoints() -> None:
    waits = {"checkpoint/wait_s": dict.fromkeys(range(20, 201, 20), 60.0)}
    [advice] = advisories(view_of(more=waits, config=config_of(trainer__save_freq=20)))
    assert "async_save" not in advice.text and advice.knob == "trainer.save_freq=40"
    [advice] = advisories(view_of(more=waits, config=config_of(trainer__async_save=False)))
    assert "trainer.async_save=true" in advice.text and advice.knob == "trainer.async_save=true"


def test_runs_on_given_rows_have_no_snapshots_to_replay() -> None:
    skipped = {"actor/skipped_updates": lambda step: float(step == 70)}
    [generating] = advisories(view_of(skipped))
    [supervised] = advisories(view_of(skipped, shapes=SFT))
    assert "verl-like replay" in generating.text and "replay" not in supervised.text


def test_records_within_their_limit_are_no_advice() -> None:
    assert advisories(view_of(records_gib=1.45)) == []


def test_rules_name_options_and_metrics_that_exist() -> None:
    for rule in RULES:
        assert rule.change and [option for option in rule.change if option not in options()] == [], rule.title
        for metric in METRIC.findall(rule.sees):
            check_name(metric)


def test_the_table_prints_a_row_for_each_rule() -> None:
    rows = markdown().splitlines()
    assert len(rows) == len(RULES) + 2
    assert {row.count("|") for row in rows} == {6}
    assert rows[2] == (
        "| A process hangs | alarm | reports of the watchdog in stalls/ | any | "
        "`trainer.on_stall`, `trainer.stall_after_s`, `trainer.max_restarts` |"
    )


@pytest.mark.parametrize("seed", range(20))
def test_missing_metrics_and_numbers_that_are_not_finite_crash_no_rule(seed: int) -> None:
    generator = random.Random(seed)
    shapes = {**EPISODES, **ASYNC, **CRITIC, **SFT, **DPO, "val/mean@1": 0.3, "val/loss": 1.0, "time/validation_s": 9.0}
    series = series_of(shapes, steps=generator.choice([1, 2, 9, 30, 90]))
    for metric in list(series):
        if generator.random() < 0.3:
            del series[metric]
    broken = (NAN, math.inf, -math.inf, 0.0, -1.0, 1e30)
    holed = {
        metric: {
            step: generator.choice(broken) if generator.random() < 0.1 else value
            for step, value in points.items()
            if generator.random() < 0.9
        }
        for metric, points in series.items()
    }
    for config in (None, Config()):
        view = RunView(series=holed, config=config, status="running", silent_s=1e5, ledger={"worker rank 0": {}})
        assert all(advice.text for advice in advisories(view))


def test_a_stale_window_says_nothing_of_the_present() -> None:
    """The correction ran in the first steps only, so that its numbers are those of another time."""
    early = {"actor/correction_ess_frac": dict.fromkeys(range(1, 12), 0.1)}
    assert advisories(view_of(more=early)) == []
    assert advisories(view_of(more=early, steps=11))[0].title == "Most responses are too far off policy"


def test_a_slow_last_step_of_a_finished_run_is_no_hang() -> None:
    shapes = {"time/step_s": lambda step: 3600.0 if step == 200 else 100.0}
    assert advisories(view_of(shapes, status="running"))[0].title == "The run is stuck in a step"
    assert [advice.title for advice in advisories(view_of(shapes))] == ["Some steps are much slower"]


def test_failures_are_counted_over_the_responses_of_the_step() -> None:
    few = view_of({"reward/num_failed": 0.04 * ROWS}, noise=0.0)
    many = view_of({"reward/num_failed": 0.06 * ROWS}, noise=0.0)
    assert [advice.title for advice in advisories(few)] == []
    assert [advice.title for advice in advisories(many)] == ["Samples get no score"]


def test_only_estimators_that_compare_siblings_need_groups_with_a_signal() -> None:
    ill = {"rollout/signal_frac": 0.3}
    assert advisories(view_of(ill, config=config_of(algorithm__adv_estimator="gae"))) == []
    assert (
        advisories(view_of(ill, config=config_of(algorithm__adv_estimator="rloo")))[0].metric == "rollout/signal_frac"
    )
    assert advisories(view_of(ill, config=config_of(algorithm__adv_estimator="mine.py:mine"))) == []


def test_an_option_that_is_set_already_is_not_proposed() -> None:
    config = config_of(data__sampler="curriculum", trainer__schedule="async")
    [advice] = advisories(view_of({"rollout/signal_frac": 0.5}, config=config))
    assert "curriculum" not in advice.text and "filter_groups" not in advice.text  # filter_groups needs schedule=sync
    assert advice.knob == "rollout.n=16"


def test_an_option_at_its_least_value_is_not_to_be_lowered() -> None:
    [advice] = advisories(view_of(NOISE))
    assert "Lower actor.optim.lr (now 1e-06), or add" in advice.text and advice.knob == "actor.optim.lr=3e-07"
    [advice] = advisories(view_of({"actor/clip_frac": 0.5}, config=config_of(actor__epochs=3)))
    assert "Lower actor.optim.lr (now 1e-06) or actor.epochs (now 3), or raise" in advice.text


def test_a_user_reads_the_current_value_and_not_a_default() -> None:
    config = config_of(reward__timeout_s=2.5)
    slow = {"reward/num_failed": 30.0, "reward/num_timeout": 30.0}
    [advice] = advisories(view_of(slow, config=config))
    assert "reward.timeout_s (now 2.5)" in advice.text and advice.knob == "reward.timeout_s=7.5"
    assert advisories(view_of(slow))[0].knob == "reward.timeout_s=30"


def test_the_healthy_shapes_are_those_of_reported_metrics() -> None:
    for metric in {**TRAIN, **ASYNC, **EPISODES, **CRITIC, **SFT, **DPO}:
        check_name(metric)


def test_the_page_of_the_rules_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs/advice.md"
    assert page.read_text() == text(), "run `python -m verl_like.report.advice > docs/advice.md`"
