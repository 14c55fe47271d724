"""``verl-like plan``: the plan of a command on this machine or on devices of the table."""

from __future__ import annotations

from dataclasses import replace

from verl_like.checks.algorithm import algorithms_exist
from verl_like.checks.cluster import CLUSTER_RULES
from verl_like.checks.gpus import Gpus, gpus_here
from verl_like.checks.models import model_is_named, named_models
from verl_like.checks.paths import missing_folder
from verl_like.config.problems import refuse
from verl_like.config.schema import Config
from verl_like.plan.advice import advice
from verl_like.plan.faster import faster
from verl_like.plan.location import location_of, location_on
from verl_like.plan.run_plan import plan_of, shapes_of
from verl_like.plan.step import planned_config
from verl_like.plan.tables import is_timed, text


def plan_text(config: Config, *, job: str, device: str, response_tokens: float | None) -> tuple[str, bool]:
    """Return the plan as text, and whether it fits.

    Args:
        job: the command that is planned, one of ``JOBS`` of ``plan/step.py``.
        device: a device of the table; empty for the devices of this machine.
        response_tokens: mean length of a response; None for half of the longest.

    Raises:
        Refused: no machine of this kind can run the configuration, or models do not exist.
        ValueError: the device is unknown.
    """
    config = planned_config(config, job)
    location = location_on(config, device) if device else location_of(config, is_timed=True)
    if location is None:
        raise ValueError(
            "the devices of this run are unknown: it joins a cluster (cluster.address), or the GPU driver does not "
            "report them. Name them, e.g. --device H100, and set cluster.num_nodes and cluster.workers_per_node."
        )
    longest = config.data.max_response_length
    if response_tokens is not None and not 0 < response_tokens <= longest:
        raise ValueError(
            f"--response-tokens is {response_tokens:g}, expected a number above 0, at most data.max_response_length="
            f"{longest}."
        )
    gpus = Gpus(location.ranks) if device else gpus_here()
    if device and config.cluster.num_nodes > 1 and not config.cluster.address:  # no cluster is joined for a plan
        config = replace(config, cluster=replace(config.cluster, address="auto"))
    refuse(
        [
            *algorithms_exist(config),
            *(problem for rule in (model_is_named, *CLUSTER_RULES) for problem in rule(config, gpus)),
        ]
    )
    command = config.trainer.prepare_command
    models = named_models(config).items()
    missing = (missing_folder(name, path, needs_file="config.json", prepare_command=command) for name, path in models)
    refuse(problem for problem in missing if problem)
    shapes = shapes_of(config, job=job)
    plan = plan_of(config, shapes, location, response_tokens=response_tokens, job=job)
    better = faster(config, shapes, location, plan, job=job) if is_timed(plan) else []
    return text(plan, advice(config, shapes, location, job=job), better), plan.fits
