"""Rules on memory, the object store, the key-value cache and the disk."""

from __future__ import annotations

from verl_like.report.advice.curve import Curve
from verl_like.report.advice.rule import ALARM, TUNING, Rule, Symptom
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.wording import named, percent, scaled
from verl_like.telemetry.run_ledger import PEAKS, PLANNED

MIN_LEAK_STEPS = 40  # allocators and caches fill in the first steps
SETTLING_FRAC = 0.1  # of the steps, which do not count
MIN_LEAK_FRAC, MIN_LEAK_GIB = 0.05, 0.1  # growth from the second to the fourth quarter; allocators vary by less
MIN_LASTING_FRAC = 0.5  # growth of the last quarter over that of the one before: it does not level off
MAX_LENGTH_GROWTH = 1.25  # longer responses need more memory without a leak
MIN_REFERENCES = 20  # growth; a step in progress holds a few more or fewer
MAX_OVER_PLAN = 1.1  # times the plan, which measured runs keep within a few percent
MIN_PREEMPTED_FRAC = 0.01  # of the responses, each computed twice
LARGE_RECORDS_GIB = 20.0

# The first one that leaks is reported: a worker's memory includes that of the others.
OF_PROCESSES = ("memory/device_gib", "memory/rss_gib", "memory/all_rss_gib")
REFERENCES, SPILLED, PREEMPTIONS = "store/live_references", "store/spilled_bytes", "rollout/preemptions"
CPU_CACHE, GPU_CACHE = "rollout.kv_cache_memory_gib", "rollout.gpu_memory_utilization"
STORE_GIB, RECORDS_GIB = "cluster.object_store_memory_gib", "trainer.max_records_gib"


def memory_leaks(view: RunView) -> Symptom | None:
    if _responses_grow(view):
        return None
    for metric in OF_PROCESSES:
        found = _steady_growth(view, metric, MIN_LEAK_GIB)
        if found is None:
            continue
        settled, grown = found
        per_step = 1024 * grown / (0.5 * len(settled))
        return Symptom(
            text=f"Memory grows without bound: {metric} is {settled.quarters()[-1]:.2f} GiB in the last quarter of "
            f"{settled.span}, {grown:.2f} GiB more than in the second, about {per_step:.2g} MiB per step. ledger.jsonl "
            f"has the memory of each process; a reward function or environment may keep its results. "
            f"{named(view, 'trainer.max_restarts')} above 0 continues from a checkpoint after a process has died.",
            metric=metric,
            step=settled.last_step,
            knob=None if view.option("trainer.max_restarts") else "trainer.max_restarts=3",
        )
    return None


def references_leak(view: RunView) -> Symptom | None:
    found = _steady_growth(view, REFERENCES, MIN_REFERENCES)
    if found is None:
        return None
    settled, grown = found
    return Symptom(
        text=f"The driver holds more and more object references: {REFERENCES} is {settled.quarters()[-1]:.0f} in the "
        f"last quarter of {settled.span}, {grown:.0f} more than in the second. Code that keeps batches keeps their "
        f"blocks in the object store, {named(view, STORE_GIB)}, until it spills to disk.",
        metric=REFERENCES,
        step=settled.last_step,
        knob=scaled(view, STORE_GIB, 2),
    )


def _steady_growth(view: RunView, metric: str, least: float) -> tuple[Curve, float] | None:
    """Return the settled curve and its growth from the second to the fourth quarter; None if it levels off."""
    curve = view.curve(metric)
    if len(curve) < MIN_LEAK_STEPS or view.window(metric) is None:
        return None
    settled = curve.slice(int(SETTLING_FRAC * len(curve)), None)
    first, second, third, fourth = settled.quarters()
    rises = first < second < third < fourth
    lasts = fourth - third >= MIN_LASTING_FRAC * (third - second)
    grown = fourth - second
    return (settled, grown) if rises and lasts and grown >= max(least, MIN_LEAK_FRAC * second) else None


def _responses_grow(view: RunView) -> bool:
    lengths = view.curve("rollout/response_tokens_max")
    return len(lengths) >= MIN_LEAK_STEPS and lengths.quarters()[-1] > MAX_LENGTH_GROWTH * lengths.quarters()[1]


def memory_exceeds_the_plan(view: RunView) -> Symptom | None:
    planned, measured = view.curve(PLANNED), next((curve for name in PEAKS if (curve := view.curve(name))), None)
    if not planned or measured is None:
        return None
    (largest, step), expected = max(zip(measured.values, measured.steps, strict=True)), planned.values[-1]
    if largest <= MAX_OVER_PLAN * expected:
        return None
    cache = GPU_CACHE if measured.metric == PEAKS[0] else CPU_CACHE
    return Symptom(
        text=f"A worker needed {largest:.2f} GiB ({measured.metric}), but the plan expected {expected:.2f}. A longer "
        f"batch may run out of memory: lower {named(view, 'actor.max_tokens_per_micro_batch')} as far as the longest "
        f"row, or {named(view, cache)}.",
        metric=measured.metric,
        step=step,
        knob=scaled(view, CPU_CACHE, 0.5) if cache == CPU_CACHE else None,
    )


def store_spills(view: RunView) -> Symptom | None:
    spilled = view.window(SPILLED)
    if spilled is None or spilled.total <= 0:
        return None
    return Symptom(
        text=f"The object store was full and wrote {spilled.total / 2**30:.2g} GiB to disk over {spilled.span} "
        f"({SPILLED}), which takes minutes for large batches. Raise {named(view, STORE_GIB)}, or that of the Ray "
        f"cluster that the run joined; or make the batch smaller, {named(view, 'data.train_batch_size')}, "
        f"{named(view, 'rollout.n')}.",
        metric=SPILLED,
        step=next(step for step, value in zip(spilled.steps, spilled.values, strict=True) if value > 0),
        knob=scaled(view, STORE_GIB, 2),
    )


def requests_are_preempted(view: RunView) -> Symptom | None:
    preempted = view.window(PREEMPTIONS)
    rows = view.num_rows(preempted) if preempted is not None else 0.0
    if preempted is None or rows <= 0 or preempted.total < MIN_PREEMPTED_FRAC * rows:
        return None
    cache = GPU_CACHE if view.curve("memory/device_gib") else CPU_CACHE
    return Symptom(
        text=f"Engines preempted {preempted.total:.0f} requests over {preempted.span} ({PREEMPTIONS}, "
        f"{percent(preempted.total / rows)} of the responses) for lack of KV cache, and computed them again. Raise "
        f"{named(view, cache)}, or lower {named(view, 'rollout.max_num_seqs')}.",
        metric=PREEMPTIONS,
        step=preempted.last_step,
        knob=scaled(view, CPU_CACHE, 2) if cache == CPU_CACHE else None,
    )


def records_have_no_limit(view: RunView) -> Symptom | None:
    if view.option(RECORDS_GIB) != 0 or view.records_gib < LARGE_RECORDS_GIB:
        return None
    return Symptom(
        text=f"The run's records (samples, ledger, trace) take {view.records_gib:.1f} GiB and have no limit. "
        f"{RECORDS_GIB}=1.5 thins the older ones; a lower {named(view, 'trainer.num_samples_to_save')} needs less.",
        knob=f"{RECORDS_GIB}=1.5",
    )


LEAKS: tuple[Rule, ...] = (
    Rule(
        level=ALARM,
        title="Memory leaks",
        sees=f"{', '.join(OF_PROCESSES)} in quarters of the run, after its first tenth",
        threshold=f"rises in each without levelling off, by {percent(MIN_LEAK_FRAC)} and {MIN_LEAK_GIB:g} GiB",
        change=("trainer.max_restarts",),
        find=memory_leaks,
    ),
    Rule(
        level=ALARM,
        title="Object references leak",
        sees=f"{REFERENCES} in quarters of the run, after its first tenth",
        threshold=f"rises in each without levelling off, by {percent(MIN_LEAK_FRAC)} and {MIN_REFERENCES}",
        change=(STORE_GIB,),
        find=references_leak,
    ),
)
MEMORY: tuple[Rule, ...] = (
    Rule(
        level=TUNING,
        title="Memory exceeds the plan",
        sees=f"{PEAKS[1]}, or {PEAKS[0]} on GPUs, over {PLANNED}",
        threshold=f"above {MAX_OVER_PLAN:g} times",
        change=("actor.max_tokens_per_micro_batch", GPU_CACHE, CPU_CACHE),
        find=memory_exceeds_the_plan,
    ),
    Rule(
        level=TUNING,
        title="The object store spills",
        sees=SPILLED,
        threshold="any in the newest 10 steps",
        change=(STORE_GIB, "data.train_batch_size", "rollout.n"),
        find=store_spills,
    ),
    Rule(
        level=TUNING,
        title="The KV cache is too small",
        sees=f"{PREEMPTIONS} over the responses",
        threshold=f"{percent(MIN_PREEMPTED_FRAC)} or more",
        change=(CPU_CACHE, GPU_CACHE, "rollout.max_num_seqs"),
        find=requests_are_preempted,
    ),
    Rule(
        level=TUNING,
        title="Records have no limit",
        sees="size of the run's records",
        threshold=f"{LARGE_RECORDS_GIB:g} GiB with {RECORDS_GIB}=0",
        change=(RECORDS_GIB, "trainer.num_samples_to_save"),
        find=records_have_no_limit,
    ),
)
