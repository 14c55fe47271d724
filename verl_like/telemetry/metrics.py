"""Every metric name once: unit, meaning and producer. ``docs/metrics.md`` is made from this table.

python -m verl_like.telemetry.metrics > docs/metrics.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from verl_like.config.suggestion import suggestion

# What a placeholder in a pattern stands for. Sources may hold slashes (openai/gsm8k).
OUTSIDE_STEP = ("time/step_s", "time/validation_s")  # seconds that are no stage of a step: the whole, and what follows
# Of the machine, and so another number when a step is taken again.
OF_THE_MACHINE = (
    "time/",
    "wait/",
    "store/",
    "memory/",
    "perf/tokens_per_s",
    "perf/rollout_tokens_per_s",
    "perf/update_tokens_per_s",
    "perf/update_mfu",
    "rollout/running_max",
    "rollout/waiting_max",
    "rollout/preemptions",
    "rollout/cached_prompt_tokens",
    "tokens/",  # without those of a process that did not answer in time
    "reward/seconds",
    "sync/seconds",
    "sync/gib_per_s",
    "progress/unix_s",
    "checkpoint/",
)
PLACEHOLDERS = {"stage": r"[a-z][a-z0-9_]*", "source": r".+", "detail": r"[^/]+", "n": r"\d+"}
_PLACEHOLDER = re.compile(r"<(\w+)>")


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: a name or a pattern with ``<placeholders>``, its unit, one sentence, and the stage that reports it."""

    pattern: str
    unit: str
    sentence: str
    producer: str

    def matches(self, name: str) -> bool:
        pieces = _PLACEHOLDER.split(self.pattern)  # literal, placeholder, literal, ...
        regex = "".join(PLACEHOLDERS[piece] if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))
        return re.fullmatch(regex, name) is not None


METRICS: tuple[Metric, ...] = (
    Metric(
        "reward/score_mean",
        "score",
        "Mean of what the reward function said, over the samples it could score.",
        "reward",
    ),
    Metric("reward/score_min", "score", "Lowest score of the step.", "reward"),
    Metric("reward/score_max", "score", "Highest score of the step.", "reward"),
    Metric("reward/score_std", "score", "Standard deviation of the scores over the step's responses.", "reward"),
    Metric(
        "reward/num_failed", "rows", "Samples without a score; reward.on_failure says what they are worth.", "reward"
    ),
    Metric("reward/num_timeout", "rows", "Of these: past reward.timeout_s.", "reward"),
    Metric("reward/num_crash", "rows", "Of these: their scorer process died.", "reward"),
    Metric("reward/num_memory", "rows", "Of these: over reward.max_memory_gib.", "reward"),
    Metric("reward/num_error", "rows", "Of these: the function raised or returned no score.", "reward"),
    Metric(
        "reward/unreadable",
        "rows",
        "Responses that broke a built-in grader: scored 0, and a mistake of the grader.",
        "reward",
    ),
    Metric(
        "reward/num_scored_alone",
        "rows",
        "Samples of batches that failed as a whole although none was at fault; a slow detour.",
        "reward",
    ),
    Metric("reward/seconds_mean", "seconds", "Mean time that scoring a sample took.", "reward"),
    Metric("reward/seconds_max", "seconds", "Longest time that scoring a sample took.", "reward"),
    Metric(
        "reward/<detail>/mean",
        "",
        "Mean of a number that was reported beside the score: by a function, or one of several rewards.",
        "reward",
    ),
    Metric("reward/shaped_mean", "reward", "Mean reward after clip, scale and over-long penalty.", "reward"),
    Metric("reward/kl_coef", "", "Weight of the KL penalty in this step; only with algorithm.kl_target.", "advantages"),
    Metric(
        "reward/kl_penalty_mean",
        "reward",
        "What the KL took from a response's reward; with algorithm.kl_coef.",
        "advantages",
    ),
    Metric("rollout/response_tokens_mean", "tokens", "Mean length of the responses.", "rollout"),
    Metric("rollout/response_tokens_max", "tokens", "Longest response.", "rollout"),
    Metric("rollout/prompt_tokens_mean", "tokens", "Mean length of the prompts.", "rollout"),
    Metric("rollout/length_finish_frac", "fraction", "Responses that ran into data.max_response_length.", "rollout"),
    Metric(
        "rollout/cached_prompt_tokens",
        "tokens",
        "Prompt tokens, once for each response, that engines found in their prefix caches.",
        "report",
    ),
    Metric("rollout/running_max", "requests", "Most requests that an engine ran at once.", "report"),
    Metric(
        "rollout/waiting_max",
        "requests",
        "Most requests that waited in an engine; beyond rollout.max_num_seqs, or for room in its cache.",
        "report",
    ),
    Metric(
        "rollout/preemptions",
        "requests",
        "Requests that an engine put back for lack of room in its cache, and computes anew.",
        "report",
    ),
    Metric(
        "rollout/weight_version",
        "version",
        "Oldest weights that any of the step's tokens were sampled from.",
        "rollout",
    ),
    Metric(
        "rollout/log_prob_diff_mean",
        "nats",
        "Mean absolute difference of engine and trainer log-probs.",
        "old_log_probs",
    ),
    Metric(
        "rollout/log_prob_diff_max",
        "nats",
        "Largest such difference; it jumps where the weights differ.",
        "old_log_probs",
    ),
    Metric(
        "rollout/num_batches",
        "batches",
        "Batches of prompts that were drawn; only with algorithm.filter_groups.",
        "rollout",
    ),
    Metric(
        "rollout/signal_frac",
        "fraction",
        "Groups with differing scores among those drawn; the others teach an estimator that compares siblings nothing.",
        "reward",
    ),
    Metric(
        "rollout/entropy_mean",
        "nats",
        "Entropy per token, estimated by the mean negative log-prob of the sampled tokens.",
        "rollout",
    ),
    Metric("actor/loss", "", "The whole loss: policy loss + KL term - entropy bonus.", "update"),
    Metric("actor/policy_loss", "", "The policy loss alone.", "update"),
    Metric(
        "actor/kl_loss",
        "nats",
        "KL(actor, ref) under actor.loss_aggregation, unweighted; only with actor.kl_loss_coef.",
        "update",
    ),
    Metric(
        "actor/entropy",
        "nats",
        "Mean entropy per token in the update's forward; only with actor.entropy_coef.",
        "update",
    ),
    Metric(
        "actor/clip_frac",
        "fraction",
        "Tokens that the clip holds; what it bounds depends on actor.policy_loss.",
        "update",
    ),
    Metric("actor/cov_frac", "fraction", "Tokens chosen by their covariance; only with clip_cov and kl_cov.", "update"),
    Metric(
        "actor/clip_frac_dual", "fraction", "Tokens held by the dual clip; only with actor.clip_ratio_dual.", "update"
    ),
    Metric("actor/ppo_kl", "nats", "KL(old actor, new actor) per token, k3 estimate.", "update"),
    Metric("actor/ratio_mean", "", "Mean probability ratio of new to old actor; near 1 when all is well.", "update"),
    Metric("actor/grad_norm", "", "Gradient norm before clipping.", "update"),
    Metric("actor/lr", "", "Learning rate, mean over the step's updates.", "update"),
    Metric(
        "actor/is_compiled",
        "0 or 1",
        "Whether the log-prob function runs compiled (actor.use_torch_compile).",
        "update",
    ),
    Metric(
        "actor/has_compiled_layers",
        "0 or 1",
        "Whether the decoder layers run compiled (actor.compile_layers).",
        "update",
    ),
    Metric(
        "actor/is_corrected",
        "0 or 1",
        "Whether algorithm.rollout_correction applied; off while the gap is below its min_gap.",
        "update",
    ),
    Metric(
        "actor/correction_kl_k1",
        "nats",
        "KL(engine, trainer) per token, k1 estimate; this and the following where corrected.",
        "update",
    ),
    Metric("actor/correction_kl_k3", "nats", "The same, k3 estimate.", "update"),
    Metric("actor/correction_chi2_token", "", "Chi-square of trainer from engine, over tokens.", "update"),
    Metric("actor/correction_chi2_sequence", "", "The same over whole responses.", "update"),
    Metric(
        "actor/correction_log_ppl_gap_mean",
        "nats",
        "Log perplexity of the trainer less that of the engine, mean over responses.",
        "update",
    ),
    Metric("actor/correction_log_ppl_gap_abs_mean", "nats", "Mean of its absolute value.", "update"),
    Metric("actor/correction_weight_mean", "", "Mean weight per token; rejected tokens count as 0.", "update"),
    Metric(
        "actor/correction_ess_frac",
        "fraction",
        "Effective sample size over all tokens: 1 where all weights are equal.",
        "update",
    ),
    Metric("actor/correction_kept_frac", "fraction", "Tokens that are learned from.", "update"),
    Metric("actor/correction_truncated_frac", "fraction", "Tokens whose weight was capped.", "update"),
    Metric(
        "actor/correction_masked_frac", "fraction", "Tokens whose weight left its bounds; with mode=mask.", "update"
    ),
    Metric("actor/correction_rejected_frac", "fraction", "Tokens dropped by rejection.", "update"),
    Metric("actor/correction_vetoed_frac", "fraction", "Responses dropped for one token.", "update"),
    Metric("actor/skipped_updates", "updates", "Updates left out because the gradient norm was not finite.", "update"),
    Metric("critic/value_loss", "reward^2", "Half the (clipped) squared error of the values.", "update"),
    Metric(
        "critic/value_clip_frac",
        "fraction",
        "Tokens whose value the clip holds; only with critic.value_clip.",
        "update",
    ),
    Metric("critic/value_mean", "reward", "Mean value per token.", "update"),
    Metric(
        "critic/explained_variance",
        "",
        "1 - Var(returns - values) / Var(returns): 1 is perfect, 0 a constant.",
        "advantages",
    ),
    Metric("critic/grad_norm", "", "Gradient norm before clipping.", "update"),
    Metric("critic/lr", "", "Learning rate, mean over the step's updates.", "update"),
    Metric("critic/skipped_updates", "updates", "Updates left out because the gradient norm was not finite.", "update"),
    Metric("advantages/mean", "", "Mean advantage per token, as the update sees it.", "advantages"),
    Metric(
        "advantages/std", "", "Standard deviation of the advantages over tokens, as the update sees them.", "advantages"
    ),
    Metric(
        "advantages/<detail>",
        "",
        "What an estimator of yours reports (Advantages.metrics), mean over the batch; a loss's is actor/<detail>.",
        "advantages",
    ),
    Metric("prompts/drawn", "prompts", "Drawn since the start of the run: the sum of the following four.", "step"),
    Metric("prompts/trained", "prompts", "Of these: an update was given a response to it.", "step"),
    Metric(
        "prompts/filtered",
        "prompts",
        "Of these: scored, and not learnt from (filter_groups, mask_overlong, pf_ppo, skip_zero_advantages).",
        "step",
    ),
    Metric("prompts/failed", "prompts", "Of these: no response has a score, or the greedy baseline has none.", "step"),
    Metric("prompts/in_flight", "prompts", "Of these: not yet any of that; none at the end of a step.", "step"),
    Metric(
        "curriculum/unseen_frac", "fraction", "Prompts that were never drawn; with data.sampler=curriculum.", "step"
    ),
    Metric(
        "curriculum/in_band_frac",
        "fraction",
        "Of the prompts with a score so far: the mean lies from data.curriculum.low to high.",
        "step",
    ),
    Metric("balance/imbalance", "", "Tokens of the busiest rank over the mean of all ranks; 1 is even.", "balance"),
    Metric(
        "store/put_bytes",
        "bytes",
        "Put into the object stores of all nodes during the step; a copy that a node pulls counts there.",
        "report",
    ),
    Metric(
        "store/inlined_bytes",
        "bytes",
        "Blocks below Ray's inline limit (100 KiB), which the driver holds itself.",
        "report",
    ),
    Metric("store/fetched_bytes", "bytes", "Copied out of blocks by workers and read by scorers.", "report"),
    Metric(
        "store/spilled_bytes",
        "bytes",
        "Written to disk because the object store was full; above 0, raise its size.",
        "report",
    ),
    Metric(
        "store/used_bytes",
        "bytes",
        "In use at the end of the step, all nodes; the step's columns still count.",
        "report",
    ),
    Metric("store/blocks", "blocks", "Blocks of the step's columns at its end.", "report"),
    Metric(
        "store/live_references",
        "references",
        "Object references the driver holds; the same after each step, or something leaks.",
        "report",
    ),
    Metric(
        "wait/<stage>_s",
        "seconds",
        "What a worker waited on the mean since the last step: for other ranks (peer), blocks (store), work (driver).",
        "report",
    ),
    Metric(
        "memory/rss_gib", "GiB", "Host memory of the largest worker now, mapped blocks of the store included.", "report"
    ),
    Metric("memory/peak_gib", "GiB", "The most that a worker had since the last step.", "report"),
    Metric("memory/baseline_gib", "GiB", "What a worker had with its libraries, before it built anything.", "report"),
    Metric(
        "memory/planned_gib",
        "GiB",
        "The most that `verl-like plan` expects: on a GPU of its memory, on CPU of a worker, its baseline included.",
        "report",
    ),
    Metric(
        "memory/all_rss_gib",
        "GiB",
        "Host memory of all processes together, what they share counted each time.",
        "report",
    ),
    Metric("memory/device_gib", "GiB", "Accelerator memory that PyTorch has handed out, largest worker.", "report"),
    Metric("memory/device_peak_gib", "GiB", "The most since the last step.", "report"),
    Metric(
        "sync/bytes", "bytes", "Weights that went into each engine; tied ones count under each of their names.", "sync"
    ),
    Metric("sync/seconds", "seconds", "What the slowest rank took for it.", "sync"),
    Metric("sync/gib_per_s", "GiB/s", "`sync/bytes` per second.", "sync"),
    Metric("sync/collectives", "", "Gathers that it took; none where each rank has all of the model.", "sync"),
    Metric(
        "sync/checksum", "", "CRC-32 of the weights that went into each engine, with `rollout.sync_checksum`.", "sync"
    ),
    Metric("time/step_s", "seconds", "Wall time of the step.", "step"),
    Metric(
        "time/validation_s",
        "seconds",
        "Wall time of the validation after this step; not part of the step.",
        "validation",
    ),
    Metric(
        "checkpoint/wait_s",
        "seconds",
        "What the run waited for a checkpoint since the line before: for copies, and for an earlier one; in no step.",
        "checkpoint",
    ),
    Metric(
        "checkpoint/write_s",
        "seconds",
        "From its beginning to its publication, of the checkpoint that was published since the line before.",
        "checkpoint",
    ),
    Metric("progress/epoch", "epochs", "Passes over the training rows so far.", "step"),
    Metric("progress/unix_s", "seconds", "When the step ended, since the first second of 1970.", "step"),
    Metric("time/<stage>_s", "seconds", "Wall time of one stage; the stages add up to the step.", "step"),
    Metric("perf/tokens", "tokens", "Prompt and response tokens of the step, all ranks together.", "step"),
    Metric("perf/response_tokens", "tokens", "Response tokens of the step, all ranks together.", "rollout"),
    Metric("perf/tokens_per_s", "tokens/s", "`perf/tokens` per second of the step.", "step"),
    Metric(
        "perf/rollout_tokens_per_s", "tokens/s", "`perf/response_tokens` per second of the stage `rollout`.", "step"
    ),
    Metric(
        "perf/update_mfu",
        "fraction",
        "Arithmetic of the actor's update over what the GPUs' maker states; recomputed layers do not count.",
        "step",
    ),
    Metric(
        "tokens/<stage>",
        "tokens",
        "Tokens that models ran forward in a stage, all ranks together; a prompt that rows share counts once.",
        "report",
    ),
    Metric(
        "perf/update_tokens_per_s",
        "tokens/s",
        "Tokens of the rows that the actor learnt from, once for each epoch, per second of the stage `update_actor`.",
        "step",
    ),
    Metric("val/mean@<n>", "score", "Mean score over n responses to every validation prompt.", "validation"),
    Metric("val/pass@<n>", "fraction", "Prompts with a correct one among n responses.", "validation"),
    Metric(
        "val/maj@<n>",
        "fraction",
        "Prompts whose most frequent answer of n is correct; no answer is an answer that votes, and is wrong.",
        "validation",
    ),
    Metric("val/num_failed", "rows", "Validation samples without a score.", "validation"),
    Metric("val/unreadable", "rows", "Validation responses that broke a built-in grader: scored 0.", "validation"),
    Metric(
        "val/<source>/mean@<n>",
        "score",
        "mean@n over the prompts of one data source, where there are several.",
        "validation",
    ),
    Metric(
        "val/<source>/pass@<n>",
        "fraction",
        "pass@n over the prompts of one data source, where there are several.",
        "validation",
    ),
    Metric(
        "val/<source>/maj@<n>",
        "fraction",
        "maj@n over the prompts of one data source, where there are several.",
        "validation",
    ),
    Metric(
        "val/<source>/num_failed", "rows", "Such samples of one data source, where there are several.", "validation"
    ),
    Metric(
        "val/<source>/unreadable", "rows", "Such responses of one data source, where there are several.", "validation"
    ),
    Metric(
        "val/<source>/<detail>/mean@<n>",
        "",
        "Mean of a number that the reward returned besides its score.",
        "validation",
    ),
    Metric("sft/loss", "nats", "Mean negative log-prob of the target tokens.", "sft"),
)


def stages(names: Iterable[str]) -> dict[str, str]:
    """The stages of a step among these metrics, in their order: name of the metric -> name of the stage."""
    return {
        name: name.removeprefix("time/").removesuffix("_s")
        for name in names
        if name.startswith("time/") and name not in OUTSIDE_STEP
    }


def repeats(name: str) -> bool:
    """Whether a step that is taken again finds the same number."""
    return not name.startswith(OF_THE_MACHINE)


def check_name(name: str) -> Metric:
    """The table's row for a metric name.

    Raises:
        ValueError: for a name the table does not have, with the nearest one it has.
    """
    for metric in METRICS:
        if metric.matches(name):
            return metric
    raise ValueError(
        f"metric {name!r} is not in the table; expected stage/what_unit. Add a row to METRICS in {__name__}"
        f"{suggestion(name, (metric.pattern for metric in METRICS)) or '.'}"
    )


def markdown() -> str:
    """The table as a page, one section per stage name."""
    lines = [
        "# Metrics",
        "",
        "Made by `python -m verl_like.telemetry.metrics > docs/metrics.md`; edit the table there, not this page.",
        "",
        "Names are `stage/what_unit`. Log-probs, entropy and KL are in nats per token. Means over tokens and "
        "sequences are over the",
        "whole mini-batch, whatever the number of ranks and micro-batches; over the updates of a step they are "
        "averaged.",
    ]
    section = ""
    for metric in METRICS:
        stage = metric.pattern.split("/")[0]
        if stage != section:
            section = stage
            lines += ["", f"## {section}", "", "| metric | unit | meaning | reported by |", "|---|---|---|---|"]
        lines.append(
            f"| `{metric.pattern}` | {metric.unit or '-'} | {metric.sentence.replace('|', chr(92) + '|')} | "
            f"{metric.producer} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
