"""Metrics of the actor's updates."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

ACTOR: tuple[Metric, ...] = (
    Metric("actor/loss", "", "Total loss: policy loss + KL term - entropy bonus.", "update"),
    Metric("actor/policy_loss", "", "Policy loss alone.", "update"),
    Metric(
        "actor/kl_loss",
        "nats",
        "KL(actor, ref) under actor.loss_aggregation, unweighted; only with actor.kl_loss_coef.",
        "update",
    ),
    Metric(
        "actor/rollout_kl_loss",
        "nats^2",
        "Squared difference of the policy's and the engine's log-probs under actor.loss_aggregation, unweighted; only "
        "with actor.rollout_kl_coef.",
        "update",
    ),
    Metric(
        "actor/distill_loss",
        "nats",
        "Mean per token of the policy's divergence from the teacher: for algorithm.distill_loss=pg the sampled reverse "
        "KL at old log-probs, for jsd the divergence over the vocabulary; only with algorithm.distill_coef.",
        "update",
    ),
    Metric(
        "actor/distill_loss/<teacher>",
        "nats",
        "actor/distill_loss over the rows of one teacher; only with ref.teachers, in steps that have such rows.",
        "update",
    ),
    Metric(
        "actor/distill_tokens_frac/<teacher>",
        "fraction",
        "Share of the response tokens that are in rows of one teacher; only with ref.teachers.",
        "update",
    ),
    Metric(
        "actor/entropy",
        "nats",
        "Mean entropy per token in the update's forward pass; only with actor.entropy_coef.",
        "update",
    ),
    Metric(
        "actor/clip_frac",
        "fraction",
        "Tokens affected by clipping; the clipped quantity depends on actor.policy_loss.",
        "update",
    ),
    Metric("actor/cov_frac", "fraction", "Tokens selected by covariance; only with clip_cov and kl_cov.", "update"),
    Metric(
        "actor/clip_frac_dual",
        "fraction",
        "Tokens affected by the dual clip; only with actor.clip_ratio_dual.",
        "update",
    ),
    Metric(
        "actor/sequence_weight_mean",
        "",
        "Mean over tokens of the weight of their response; only with actor.policy_loss=vespo.",
        "update",
    ),
    Metric("actor/ppo_kl", "nats", "KL(old actor, new actor) per token, k3 estimate.", "update"),
    Metric(
        "actor/ratio_mean", "", "Mean probability ratio of new to old actor; close to 1 in a healthy run.", "update"
    ),
    Metric(
        "actor/off_policy_masked_frac",
        "fraction",
        "Tokens left out of the policy loss; only with actor.off_policy_mask_threshold.",
        "update",
    ),
    Metric(
        "actor/entropy_masked_frac",
        "fraction",
        "Tokens left out of the policy loss for their low entropy; only with algorithm.top_entropy_quantile.",
        "update",
    ),
    Metric("actor/grad_norm", "", "Gradient norm before clipping.", "update"),
    Metric("actor/lr", "", "Learning rate, mean over the step's updates.", "update"),
    Metric(
        "actor/is_compiled", "0 or 1", "1 if the log-prob function is compiled (actor.use_torch_compile).", "update"
    ),
    Metric(
        "actor/has_compiled_layers", "0 or 1", "1 if the decoder layers are compiled (actor.compile_layers).", "update"
    ),
    Metric(
        "actor/is_corrected",
        "0 or 1",
        "1 if algorithm.rollout_correction was applied; 0 while the gap is below its min_gap.",
        "update",
    ),
    Metric(
        "actor/correction_kl_k1",
        "nats",
        "KL(engine, trainer) per token, k1 estimate; this and the following only if corrected.",
        "update",
    ),
    Metric("actor/correction_kl_k3", "nats", "The same, k3 estimate.", "update"),
    Metric("actor/correction_chi2_token", "", "Chi-square of trainer from engine, over tokens.", "update"),
    Metric("actor/correction_chi2_sequence", "", "The same over whole responses.", "update"),
    Metric(
        "actor/correction_log_ppl_gap_mean",
        "nats",
        "Log perplexity of the trainer minus that of the engine, mean over responses.",
        "update",
    ),
    Metric("actor/correction_log_ppl_gap_abs_mean", "nats", "Mean of the absolute gap.", "update"),
    Metric("actor/correction_weight_mean", "", "Mean weight per token; rejected tokens count as 0.", "update"),
    Metric(
        "actor/correction_ess_frac",
        "fraction",
        "Effective sample size over all tokens; 1 if all weights are equal.",
        "update",
    ),
    Metric("actor/correction_kept_frac", "fraction", "Tokens that contribute to the update.", "update"),
    Metric("actor/correction_truncated_frac", "fraction", "Tokens whose weight was capped.", "update"),
    Metric(
        "actor/correction_masked_frac",
        "fraction",
        "Tokens whose weight was out of bounds; only with mode=mask.",
        "update",
    ),
    Metric("actor/correction_rejected_frac", "fraction", "Tokens dropped by rejection.", "update"),
    Metric("actor/correction_vetoed_frac", "fraction", "Responses dropped because of a single token.", "update"),
    Metric(
        "moe/max_load",
        "ratio",
        "Tokens of the expert with the most over the mean of its layer's experts, in the most uneven layer; 1 is even.",
        "update",
    ),
    Metric("moe/max_load/<n>", "ratio", "The same of the n-th layer with experts, from 0.", "update"),
    Metric(
        "moe/aux_loss",
        "",
        "The imbalance of experts by actor.router_aux_loss_coef; with balanced experts it is the coefficient.",
        "update",
    ),
    Metric("moe/unused_frac", "fraction", "Experts without a token in an update.", "update"),
    Metric("actor/skipped_updates", "updates", "Updates skipped because the gradient norm was not finite.", "update"),
)
