"""Metrics of balance, object store, waiting, memory and weight sync."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

RESOURCES: tuple[Metric, ...] = (
    Metric(
        "balance/imbalance",
        "",
        "Tokens of the busiest rank over the mean of all ranks; 1 is perfectly balanced.",
        "balance",
    ),
    Metric(
        "store/put_bytes",
        "bytes",
        "Put into the object stores of all nodes during the step; a copy pulled by a node counts there.",
        "report",
    ),
    Metric(
        "store/inlined_bytes",
        "bytes",
        "Blocks below Ray's inline limit (100 KiB), which the driver's process holds.",
        "report",
    ),
    Metric("store/fetched_bytes", "bytes", "Copied out of blocks by workers and read by scorers.", "report"),
    Metric(
        "store/spilled_bytes",
        "bytes",
        "Written to disk because the object store was full; if above 0, raise its size.",
        "report",
    ),
    Metric(
        "store/used_bytes",
        "bytes",
        "In use on all nodes during the last update of the step or at its end, including the step's columns.",
        "report",
    ),
    Metric("store/blocks", "blocks", "Blocks of the step's columns at its end.", "report"),
    Metric(
        "store/live_references",
        "references",
        "Object references held by the driver; growth from step to step indicates a leak.",
        "report",
    ),
    Metric(
        "wait/<stage>_s",
        "seconds",
        "Mean time a worker waited since the last step: for other ranks (peer), blocks (store) or work (driver).",
        "report",
    ),
    Metric(
        "memory/rss_gib",
        "GiB",
        "Host memory of the largest worker now, including mapped blocks of the store.",
        "report",
    ),
    Metric("memory/peak_gib", "GiB", "Largest host memory of a worker since the last step.", "report"),
    Metric(
        "memory/baseline_gib", "GiB", "Host memory of a worker with its libraries, before it built anything.", "report"
    ),
    Metric(
        "memory/planned_gib",
        "GiB",
        "Peak expected by `verl-like plan`: GPU memory, or on CPU the memory of a worker including its baseline.",
        "report",
    ),
    Metric(
        "memory/all_rss_gib",
        "GiB",
        "Host memory of all processes together; shared memory counts once per process.",
        "report",
    ),
    Metric("memory/device_gib", "GiB", "Accelerator memory allocated by PyTorch, largest worker.", "report"),
    Metric("memory/device_peak_gib", "GiB", "Peak of memory/device_gib since the last step.", "report"),
    Metric(
        "sync/bytes", "bytes", "Weights loaded into each engine; tied weights count under each of their names.", "sync"
    ),
    Metric(
        "sync/seconds",
        "seconds",
        "Time of the weight sync on the slowest rank. A rank may begin before other ranks have finished their update; "
        "`time/sync_s` begins after the update of all ranks.",
        "sync",
    ),
    Metric("sync/pause_s", "seconds", "Longest time for which an engine took no steps for the weight sync.", "sync"),
    Metric("sync/gib_per_s", "GiB/s", "`sync/bytes` per second.", "sync"),
    Metric("sync/collectives", "", "Gathers during the weight sync; 0 if each rank has the whole model.", "sync"),
    Metric(
        "sync/checksum", "", "CRC-32 of the weights loaded into each engine; only with `rollout.sync_checksum`.", "sync"
    ),
)
