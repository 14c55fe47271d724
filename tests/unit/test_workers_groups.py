"""What the driver makes of the answers of all ranks."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from verl_like.config.schema import RolloutConfig
from verl_like.controller.errors import RunError
from verl_like.controller.worker_group import WorkerGroup
from verl_like.workers.groups import RolloutGroup
from verl_like.workers.messages import SyncReport

REPORT = SyncReport(version=7, num_bytes=2**20, seconds=0.5, pause_s=0.5, collectives=0, checksum=11)


def synced(reports: list[SyncReport]) -> SyncReport:
    group = cast(WorkerGroup, SimpleNamespace(call=lambda method, **options: reports))
    return RolloutGroup(group, RolloutConfig()).sync()


def test_a_sync_is_as_slow_as_its_slowest_rank() -> None:
    assert synced([REPORT, replace(REPORT, seconds=0.75)]).seconds == 0.75


@pytest.mark.parametrize("checksum", [11, None])
def test_ranks_with_one_checksum_or_none_are_no_error(checksum: int | None) -> None:
    found = synced([replace(REPORT, checksum=checksum)] * 3)
    assert found.checksum == checksum and ("sync/checksum" in found.metrics) == (checksum is not None)


def test_ranks_that_gave_other_weights_end_the_run() -> None:
    reported = "in the sync to version 7 ranks [2] sent their engines other weights than rank 0: checksums 12 and 11"
    with pytest.raises(RunError, match=re.escape(reported) + ".*fsdp.shard_size=all"):
        synced([REPORT, REPORT, replace(REPORT, checksum=12)])
