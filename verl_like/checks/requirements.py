"""Check that this machine can run the configuration, before Ray starts and any model loads."""

from __future__ import annotations

import logging
from pathlib import Path

from verl_like.config.schema import Config
from verl_like.machine import extensions
from verl_like.machine.findings import Status, refuse
from verl_like.machine.probes import check_for_runs

log = logging.getLogger(__name__)


def check_machine(config: Config, *, generates: bool, warns: bool = True) -> None:
    """Refuse a run that this machine cannot execute; optionally warn of settings of the machine that slow it down.

    On a joined cluster, the workers check their own machines when they build their engines.

    Args:
        generates: whether the run has rollout engines.
        warns: whether to log warnings.

    Raises:
        ValueError: requirements are missing; the message lists them all with remedies.
    """
    if config.cluster.address:
        return
    engines = ["ray", "torch"]
    if generates:
        engines += [config.rollout.backend, *([config.reward.judge.backend] if config.reward.judge.path else [])]
    found = check_for_runs(Path(config.trainer.output_dir).expanduser())
    found += [finding for engine in dict.fromkeys(engines) for finding in extensions.check(engine)]
    refuse(found)
    for finding in found if warns else ():
        if finding.status is Status.NOTE:
            log.warning("%s: %s; %s", finding.name, finding.value, finding.remedy)
