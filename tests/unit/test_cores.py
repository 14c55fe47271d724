"""How the cores of a machine without GPUs are shared out to workers and their threads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from verl_like.checks import cpu_workers as checks_cores
from verl_like.checks.cluster import threads_are_for_workers_on_cpu, threads_have_cores, threads_problem
from verl_like.checks.cpu_workers import most_workers, num_parameters, shares_of
from verl_like.checks.gpus import Gpus
from verl_like.config.schema import Config
from verl_like.machine.cores import MAX_WORKERS, USUAL_WORKERS, Shares, quota_cores, shared_out, usable_cores
from verl_like.plan.location import location_of

COUNTS = st.integers(1, 512)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A small model and a batch of 64 prompts, on a machine with much memory."""
    save_file({"a": torch.zeros(1000, 10), "b": torch.zeros(7)}, tmp_path / "model.safetensors", {"format": "pt"})
    sound = Config()
    sound.model.path, sound.cluster.device = str(tmp_path), "cpu"
    sound.data.train_batch_size = sound.actor.mini_batch_size = sound.critic.mini_batch_size = 64
    return sound


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_cores, "memory_gib", lambda: 64.0)


@given(
    cores=COUNTS,
    kept=st.integers(0, 64),
    most=st.integers(0, 64),
    dealt=st.lists(COUNTS, min_size=1, max_size=3),
    multiple_of=st.sampled_from([1, 2, 3, 4, 8]),
)
def test_there_are_never_more_threads_than_cores_and_more_than_two_workers_only_where_they_fit(
    cores: int, kept: int, most: int, dealt: list[int], multiple_of: int
) -> None:
    found = shared_out(cores, kept=kept, most=most, dealt=dealt, multiple_of=multiple_of, workers=0, threads=0)
    assert found.workers >= 1 and found.threads >= 1
    assert found.workers * found.threads <= cores
    assert found.workers >= min(USUAL_WORKERS, cores)
    if found.workers > USUAL_WORKERS:
        assert found.workers <= min(most, MAX_WORKERS, cores - kept)
        assert found.workers % multiple_of == 0 and not any(size % found.workers for size in dealt)
        assert found.workers * found.threads <= cores - kept, "scorers have what is kept for them"


@given(
    cores=COUNTS,
    kept=st.integers(0, 64),
    most=st.integers(0, 64),
    dealt=st.lists(COUNTS, min_size=1, max_size=3),
    threads=st.integers(0, 64),
    workers=st.integers(0, 16),
)
def test_what_is_asked_for_is_given(
    cores: int, kept: int, most: int, dealt: list[int], threads: int, workers: int
) -> None:
    found = shared_out(cores, kept=kept, most=most, dealt=dealt, multiple_of=1, workers=workers, threads=threads)
    assert found.workers == workers or (not workers and found.workers >= 1)
    assert found.threads == threads or (not threads and found.threads >= 1)
    if not workers and threads <= cores:
        assert found.workers * found.threads <= cores
    if not threads and workers <= cores:
        assert found.workers * found.threads <= cores


@given(most=st.integers(0, 64), dealt=COUNTS, multiple_of=st.sampled_from([1, 2, 4]), kept=st.integers(0, 8))
def test_two_cores_are_two_workers_of_one_thread_whatever_the_batch(
    most: int, dealt: int, multiple_of: int, kept: int
) -> None:
    found = shared_out(2, kept=kept, most=most, dealt=[dealt], multiple_of=multiple_of, workers=0, threads=0)
    assert found == Shares(2, 1)


@pytest.mark.parametrize(
    ("cores", "changes", "expected"),
    [
        (1, {}, Shares(1, 1)),
        (2, {"workers": 1}, Shares(1, 2)),
        (2, {"workers": 4}, Shares(4, 1)),
        (3, {}, Shares(2, 1)),
        (4, {}, Shares(4, 1)),
        (6, {}, Shares(2, 3)),  # 4 workers would leave two cores
        (8, {}, Shares(8, 1)),
        (16, {}, Shares(8, 2)),
        (16, {"kept": 3}, Shares(4, 3)),
        (16, {"most": 3}, Shares(2, 8)),
        (16, {"most": 0}, Shares(2, 8)),
        (16, {"dealt": [64, 12]}, Shares(4, 4)),
        (16, {"dealt": [7]}, Shares(7, 2)),
        (16, {"dealt": [96], "multiple_of": 3}, Shares(6, 2)),
        (16, {"threads": 4}, Shares(4, 4)),
        (16, {"workers": 1}, Shares(1, 16)),
        (96, {}, Shares(8, 12)),
    ],
)
def test_cores_go_to_workers_first_and_then_to_their_threads(
    cores: int, changes: dict[str, object], expected: Shares
) -> None:
    plain = {"kept": 0, "most": 64, "dealt": [64, 64], "multiple_of": 1, "workers": 0, "threads": 0}
    assert shared_out(cores, **{**plain, **changes}) == expected  # type: ignore[arg-type]


def test_a_run_has_as_many_workers_as_its_batch_models_and_memory_allow(
    config: Config, memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shares_of(config, 16) == Shares(8, 2)
    config.actor.mini_batch_size = 4
    assert shares_of(config, 16) == Shares(4, 4)
    config.actor.mini_batch_size = 64
    config.rollout.kv_cache_memory_gib = 10.0  # 61 GiB for workers of 13
    assert shares_of(config, 16) == Shares(4, 4)
    config.rollout.kv_cache_memory_gib = 0.25
    config.reward.judge.path, config.reward.num_workers = config.model.path, 4
    assert shares_of(config, 16) == Shares(4, 3), "a judge and three more scorers have a core each"
    config.reward.judge.path, config.reward.num_workers = "", 1
    monkeypatch.setattr(checks_cores, "MAX_PARAMETERS", 10_006)
    assert shares_of(config, 16) == Shares(2, 8), "a large model has threads instead"
    config.model.path = "somebody/a-model"
    assert shares_of(config, 16) == Shares(2, 8), "of a hub name nobody knows how large it is"


def test_the_cores_of_a_cluster_that_is_joined_are_others_too(config: Config, memory: None) -> None:
    config.cluster.address = "auto"
    assert shares_of(config, 64) == Shares(2, 1)
    assert shares_of(config, 1) == Shares(1, 1)
    config.cluster.threads_per_worker = 8
    assert shares_of(config, 64) == Shares(2, 8)
    assert shares_of(config, 8) == Shares(1, 8)


def test_parameters_are_counted_in_the_heads_of_files(config: Config, tmp_path: Path) -> None:
    assert num_parameters(str(tmp_path)) == 10_007
    assert most_workers(config, 64.0) == int(61 / 3.25) == 18
    assert most_workers(config, 2.0) == 0
    for content in (b"", b"{}", b"\xff" * 100, (2).to_bytes(8, "little") + b"[]"):
        (tmp_path / "model.safetensors").write_bytes(content)
        assert num_parameters(str(tmp_path)) == 0 == most_workers(config, 64.0)


def test_the_plan_has_the_workers_and_threads_of_the_run(
    config: Config, memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("checks.gpus", "plan.location"):
        monkeypatch.setattr(f"verl_like.{module}.usable_cores", lambda: 16)
    place = location_of(config, is_timed=False)
    assert place is not None and (place.ranks, place.threads) == (8, 2)
    assert Gpus(0).ranks_per_node(config) == 8


# --- what is refused


def reported(config: Config, gpus: Gpus) -> list[str]:
    return [*threads_are_for_workers_on_cpu(config, gpus), *threads_have_cores(config, gpus)]


def test_more_threads_than_cores_are_refused(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_like.checks.cluster.usable_cores", lambda: 2)
    for workers, threads in ((0, 0), (0, 1), (0, 2), (1, 2), (2, 1), (4, 1), (4, 0)):
        config.cluster.workers_per_node, config.cluster.threads_per_worker = workers, threads
        assert reported(config, Gpus(0)) == []
    config.cluster.workers_per_node, config.cluster.threads_per_worker = 2, 2
    assert reported(config, Gpus(0)) == [
        "cluster.threads_per_worker is 2, but the 2 workers of a node share 2 cores. Set cluster.threads_per_worker=1 "
        "or less, 0 for all available, or cluster.workers_per_node=1."
    ]
    config.cluster.workers_per_node, config.cluster.threads_per_worker = 0, 3
    assert reported(config, Gpus(0)) == [
        "cluster.threads_per_worker is 3, but the only worker of a node has 2 cores. Set "
        "cluster.threads_per_worker=2 or less, 0 for all available."
    ]


def test_threads_of_workers_on_gpus_are_refused(config: Config) -> None:
    config.cluster.device, config.cluster.threads_per_worker = "auto", 4
    assert reported(config, Gpus(1)) == [
        "cluster.threads_per_worker is 4, which applies to workers on CPU, but the workers run on GPUs. Set "
        "cluster.threads_per_worker=0."
    ]
    assert reported(config, Gpus(None)) == [], "not known yet"


def test_a_cluster_elsewhere_is_held_against_its_own_cores(config: Config) -> None:
    config.cluster.address, config.cluster.threads_per_worker = "auto", 600
    assert reported(config, Gpus(None)) == []
    assert len(list(threads_problem(config, workers=2, cores=64))) == 1


# --- cores that are there


def test_cores_that_this_process_must_not_use_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5})
    assert usable_cores() == 1


def test_the_smallest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    group = tmp_path / "pods/one"
    group.mkdir(parents=True)
    own = "0::/pods/one\n"
    assert quota_cores(own, tmp_path) is None
    (group / "cpu.max").write_text("max 100000\n")
    assert quota_cores(own, tmp_path) is None
    (group.parent / "cpu.max").write_text("350000 100000\n")
    assert quota_cores(own, tmp_path) == 3.5
    (group / "cpu.max").write_text("600000 100000\n")
    assert quota_cores(own, tmp_path) == 3.5
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert quota_cores("0::/somewhere/else\n", tmp_path) == 0.5, "in a container the path is that of its host"


def test_the_quota_of_the_first_version_of_control_groups_counts_too(tmp_path: Path) -> None:
    group = tmp_path / "cpu,cpuacct/docker"
    group.mkdir(parents=True)
    own = "3:memory:/docker\n2:cpu,cpuacct:/docker\n"
    (group / "cpu.cfs_period_us").write_text("100000\n")
    for quota, expected in (("-1\n", None), ("200000\n", 2.0)):
        (group / "cpu.cfs_quota_us").write_text(quota)
        assert quota_cores(own, tmp_path) == expected
    assert quota_cores("3:memory:/docker\n", tmp_path) is None
    assert quota_cores("", tmp_path) is None
