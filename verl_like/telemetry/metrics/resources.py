"""Metrics of balance, object store, waiting, memory and weight sync."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

RESOURCES: tuple[Metric, ...] = (
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
)
