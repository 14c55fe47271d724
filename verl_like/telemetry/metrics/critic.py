"""Metrics of the critic's updates and of the advantages."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

CRITIC: tuple[Metric, ...] = (
    Metric("critic/value_loss", "reward^2", "Half the (clipped) squared error of the values.", "update"),
    Metric(
        "critic/value_clip_frac", "fraction", "Tokens whose value is clipped; only with critic.value_clip.", "update"
    ),
    Metric("critic/value_mean", "reward", "Mean value per token.", "update"),
    Metric(
        "critic/explained_variance",
        "",
        "1 - Var(returns - values) / Var(returns): 1 is perfect, 0 is as good as a constant.",
        "advantages",
    ),
    Metric("critic/grad_norm", "", "Gradient norm before clipping.", "update"),
    Metric("critic/lr", "", "Learning rate, mean over the step's updates.", "update"),
    Metric("critic/skipped_updates", "updates", "Updates skipped because the gradient norm was not finite.", "update"),
    Metric("advantages/mean", "", "Mean advantage per token, as used by the update.", "advantages"),
    Metric(
        "advantages/std", "", "Standard deviation of the advantages over tokens, as used by the update.", "advantages"
    ),
    Metric(
        "advantages/<detail>",
        "",
        "Metric of a custom estimator (Advantages.metrics), mean over the batch; a loss reports actor/<detail>.",
        "advantages",
    ),
)
