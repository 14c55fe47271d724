"""Metrics of the critic's updates and of the advantages."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

CRITIC: tuple[Metric, ...] = (
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
)
