"""Rules on the cluster and its engines. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from verl_like.checks.cpu_workers import shares_of
from verl_like.checks.gpus import Gpus, gpus_here
from verl_like.checks.pools import CRITIC, POOL_RULES, REF, ROLLOUT, TRAINER, pool_ranks
from verl_like.checks.reward import own_gpus
from verl_like.config.schema import Config, FsdpConfig
from verl_like.machine.cores import MAX_WORKERS, usable_cores
from verl_like.machine.engine_arguments import installed, unusable


def engine_fits_the_longest_row(config: Config, gpus: Gpus) -> Iterator[str]:
    rollout = config.rollout
    longest = config.data.max_prompt_length + config.data.max_response_length
    # vLLM splits prompts on a GPU; its CPU kernels need whole prompts.
    if rollout.backend == "vllm" and gpus.runs_on_gpu(config) is False and rollout.max_num_batched_tokens < longest:
        yield (
            f"rollout.max_num_batched_tokens is {rollout.max_num_batched_tokens}, but data.max_prompt_length + "
            f"data.max_response_length is {longest}, and vLLM on CPU cannot split a row. Set "
            f"rollout.max_num_batched_tokens={longest} or more, or shorten the rows."
        )


def engine_steps_fit_all_sequences(config: Config, gpus: Gpus) -> Iterator[str]:
    rollout = config.rollout
    if rollout.backend == "vllm" and rollout.max_num_batched_tokens < rollout.num_seqs:
        yield (
            f"rollout.max_num_batched_tokens is {rollout.max_num_batched_tokens}, but rollout.max_num_seqs="
            f"{rollout.num_seqs} sequences may each need a token in an engine step. Set "
            f"rollout.max_num_seqs={rollout.max_num_batched_tokens} or less."
        )


def engine_arguments_are_known(config: Config, gpus: Gpus) -> Iterator[str]:
    rollout = config.rollout
    if not rollout.engine_kwargs:
        return
    if rollout.backend == "hf":
        yield (
            f"rollout.engine_kwargs has {', '.join(rollout.engine_kwargs)}, but rollout.backend=hf takes none. Remove "
            "them, or use rollout.backend=vllm."
        )
    else:
        yield from unusable(rollout.engine_kwargs, known=installed())


def tensor_parallel_fits_ranks(config: Config, gpus: Gpus) -> Iterator[str]:
    size = config.rollout.tensor_parallel_size
    if size > 1 and config.rollout.backend == "hf":
        yield (
            f"rollout.tensor_parallel_size is {size}, but rollout.backend=hf generates on one rank at a time. "
            "Set rollout.tensor_parallel_size=1, or rollout.backend=vllm."
        )
    ranks = gpus.ranks_per_node(config)
    if ranks:
        yield from ranks_problem(config, per_node=ranks)


def ranks_problem(config: Config, *, per_node: int) -> Iterator[str]:
    """Yield a problem for each number of ranks that must divide those of its pool, with ``per_node`` workers a node."""
    num_workers = per_node * config.cluster.num_nodes
    ranks = {pool: pool_ranks(config, pool, num_workers) for pool in (TRAINER, ROLLOUT, REF, CRITIC)}
    yield from tensor_parallel_problem(config, ranks=min(per_node, ranks[ROLLOUT]))
    yield from shard_size_problem(config, ranks_of=ranks)
    yield from sequence_parallel_problem(config, ranks_of=ranks)


def tensor_parallel_problem(config: Config, *, ranks: int) -> Iterator[str]:
    """Yield a problem if an engine's size does not divide the ``ranks`` of a node, since its ranks share a node."""
    size = config.rollout.tensor_parallel_size
    if ranks % size:
        problem = "is more than" if size > ranks else "does not divide"
        yield (
            f"rollout.tensor_parallel_size is {size}, which {problem} the {ranks} worker{'s' if ranks > 1 else ''} of "
            f"a node. Set it to a divisor of {ranks}, or cluster.workers_per_node to a multiple of {size}."
        )


def shard_size_problem(config: Config, *, ranks_of: Mapping[str, int]) -> Iterator[str]:
    """Yield a problem for each model that cannot be sharded over equal groups of all ranks of its pool."""
    for section, fsdp in shardings(config).items():
        ranks = ranks_of.get(section, ranks_of[TRAINER])
        if fsdp.shard_size.isdecimal() and ranks % int(fsdp.shard_size):
            yield (
                f"{section}.fsdp.shard_size is {fsdp.shard_size}, which does not divide the {ranks} "
                f"worker{'s' * (ranks > 1)}. Set it to a divisor of {ranks}, such as the GPUs of a node, or to all."
            )


def sequence_parallel_problem(config: Config, *, ranks_of: Mapping[str, int]) -> Iterator[str]:
    """Yield a problem for each model whose sequences cannot be split over equal groups of all ranks of its pool."""
    for section, size in sequence_parallel_sizes(config).items():
        ranks = ranks_of.get(section, ranks_of[TRAINER])
        if ranks % size:
            yield (
                f"{section}.sequence_parallel_size is {size}, which does not divide the {ranks} worker"
                f"{'s' * (ranks > 1)}. Set it to a divisor of {ranks}."
            )


def sequence_parallel_sizes(config: Config) -> dict[str, int]:
    """Return {section of the model: number of ranks that share a sequence}."""
    return {
        "actor": config.actor.sequence_parallel_size,
        "ref": config.ref.sequence_parallel_size,
        "critic": config.critic.sequence_parallel_size,
    }


def shared_sequences_are_packed(config: Config, gpus: Gpus) -> Iterator[str]:
    shared = [name for name, size in sequence_parallel_sizes(config).items() if size > 1]
    if shared and not config.model.remove_padding:
        yield (
            f"{shared[0]}.sequence_parallel_size cuts packed rows, but model.remove_padding is false. Set "
            f"model.remove_padding=true, or {shared[0]}.sequence_parallel_size=1."
        )


def shardings(config: Config) -> dict[str, FsdpConfig]:
    """Return {section of the model: its sharding options}."""
    return {
        "actor": config.actor.fsdp,
        "ref": config.ref.fsdp,
        "critic": config.critic.fsdp,
        "reward.model": config.reward.model.fsdp,
    }


def greedy_validation_is_not_repeated(config: Config, gpus: Gpus) -> Iterator[str]:
    val = config.rollout.val
    if val.temperature == 0 and val.n > 1:
        yield (
            f"rollout.val.temperature is 0 (greedy) and rollout.val.n is {val.n}: all {val.n} responses would be the "
            "same. Set rollout.val.n=1, or rollout.val.temperature=1."
        )


def gpus_exist(config: Config, gpus: Gpus) -> Iterator[str]:
    cluster, found = config.cluster, gpus.number
    if found is None or not gpus.runs_on_gpu(config):
        return
    if found == 0:
        yield (
            "cluster.device is cuda, but no GPU was found. Set cluster.device=cpu, or check the driver with "
            "`verl-like doctor`."
        )
        return
    if gpus.torch_is_cpu_build:
        yield (
            f"the workers would run on {found} GPU{'s' if found > 1 else ''} (cluster.device={cluster.device}), but "
            "the installed torch is a CPU build. Run `make setup ACCELERATOR=cuda`, or set cluster.device=cpu."
        )
    own = own_gpus(config)
    left = found - sum(own.values())
    wanted = cluster.num_nodes * max(cluster.wanted_per_node, 1)
    models = "".join(f" + {name}={count}" for name, count in own.items())
    if wanted > left:
        yield (
            f"cluster requests {wanted + sum(own.values())} GPUs (num_nodes={cluster.num_nodes} x "
            f"workers_per_node={max(cluster.wanted_per_node, 1)}{models}), but "
            f"{found} exist{'s' if found == 1 else ''}. Set "
            f"cluster.workers_per_node={max(left // cluster.num_nodes, 1)}, "
            "or cluster.address to join a larger cluster."
        )
    if own and not cluster.wanted_per_node:
        yield (
            f"cluster.workers_per_node is 0, which uses every GPU, but {' and '.join(own)} need separate "
            f"GPUs. Set cluster.workers_per_node={left // cluster.num_nodes}."
        )


def nodes_need_a_cluster(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.cluster.num_nodes > 1 and not config.cluster.address:
        yield (
            f"cluster.num_nodes is {config.cluster.num_nodes}, but cluster.address is empty and a local Ray has 1 "
            "node. Set cluster.address=auto (or HOST:PORT) to join a running cluster, or cluster.num_nodes=1."
        )


def gpu_only_options_have_a_gpu(config: Config, gpus: Gpus) -> Iterator[str]:
    if gpus.runs_on_gpu(config) is not False:
        return
    for name, is_set in offloads(config).items():
        if is_set:
            yield (
                f"{name} is true, but the workers run on CPU, which has no device memory to offload. Set {name}=false."
            )


def offloads(config: Config) -> dict[str, bool]:
    """Return {name: whether it is set} of the options that keep state in host memory."""
    fsdp = shardings(config)
    optim = {"actor": config.actor.optim, "critic": config.critic.optim}
    return {
        **{f"{section}.fsdp.offload_params": of.offload_params for section, of in fsdp.items()},
        **{f"{section}.fsdp.cpu_offload": of.cpu_offload for section, of in fsdp.items()},
        **{f"{section}.optim.offload": of.offload for section, of in optim.items()},
    }


def only_on_gpus(config: Config) -> frozenset[str]:
    """Return the options that need GPUs if this machine has none, else an empty set.

    They are the offloads that are set and the numbers of workers and nodes.
    """
    if config.cluster.address or gpus_here().runs_on_gpu(config) is not False:
        return frozenset()
    moved = frozenset(name for name, is_set in offloads(config).items() if is_set)
    return moved | {"cluster.workers_per_node", "cluster.num_nodes"}


def cpu_offload_excludes_other_offloads(config: Config, gpus: Gpus) -> Iterator[str]:
    found = offloads(config)
    for section, fsdp in shardings(config).items():
        if not fsdp.cpu_offload:
            continue
        for name in (f"{section}.fsdp.offload_params", f"{section}.optim.offload"):
            if found.get(name):
                yield (
                    f"{section}.fsdp.cpu_offload keeps parameters and optimiser state in host memory all the time, so "
                    f"{name} would have no effect. Set {name}=false, or {section}.fsdp.cpu_offload=false."
                )
        if fsdp.shard_size == "1":
            yield (
                f"{section}.fsdp.cpu_offload copies layers to the GPU one by one, but {section}.fsdp.shard_size=1 "
                f"gives each rank a whole replica. Set {section}.fsdp.shard_size=all, or "
                f"{section}.fsdp.cpu_offload=false."
            )


def threads_are_for_workers_on_cpu(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.cluster.threads_per_worker and gpus.runs_on_gpu(config):
        yield (
            f"cluster.threads_per_worker is {config.cluster.threads_per_worker}, which applies to workers on CPU, but "
            "the workers run on GPUs. Set cluster.threads_per_worker=0."
        )


def threads_have_cores(config: Config, gpus: Gpus) -> Iterator[str]:
    if gpus.runs_on_gpu(config) is False and not config.cluster.address:
        cores = usable_cores()
        yield from threads_problem(config, workers=shares_of(config, cores).workers, cores=cores)


def threads_problem(config: Config, *, workers: int, cores: int) -> Iterator[str]:
    """Yield a problem if each worker is to have several threads and a node has fewer ``cores`` than threads in all."""
    threads = config.cluster.threads_per_worker
    if threads <= 1 or threads * workers <= cores:
        return
    owner = f"the {workers} workers of a node share" if workers > 1 else "the only worker of a node has"
    fewer = f", or cluster.workers_per_node={cores // threads}" if threads <= cores else ""
    yield (
        f"cluster.threads_per_worker is {threads}, but {owner} {cores} core{'s' * (cores > 1)}. Set "
        f"cluster.threads_per_worker={max(cores // workers, 1)} or less, 0 for all available{fewer}."
    )


def workers_have_cores(config: Config, gpus: Gpus) -> Iterator[str]:
    """Yield a problem if there are many more workers than cores, because they would take minutes to start.

    A few more are allowed, to try the layout of a larger machine.
    """
    workers, cores = config.cluster.wanted_per_node, usable_cores()
    if gpus.runs_on_gpu(config) is False and not config.cluster.address and workers > max(MAX_WORKERS, cores):
        yield (
            f"cluster.workers_per_node is {workers}, but the workers run on CPU, and this machine has {cores} "
            f"core{'s' * (cores > 1)} for them. Set cluster.workers_per_node={cores}, or 0 for as many as fit."
        )


def restarts_are_allowed(config: Config, gpus: Gpus) -> Iterator[str]:
    trainer = config.trainer
    if trainer.on_stall == "restart" and not trainer.max_restarts:
        yield (
            "trainer.on_stall is restart, but trainer.max_restarts=0 allows none. Set trainer.max_restarts=3, or "
            "trainer.on_stall=abort."
        )


def dealing_is_deterministic(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.trainer.deterministic and config.rollout.dealing == "queue":
        yield (
            "rollout.dealing is queue, but trainer.deterministic=true requires a run that repeats bit for bit, and "
            "which engine runs a prompt can change its last bits. Set rollout.dealing=ahead, or "
            "trainer.deterministic=false."
        )


CLUSTER_RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    engine_fits_the_longest_row,
    engine_steps_fit_all_sequences,
    engine_arguments_are_known,
    gpus_exist,
    nodes_need_a_cluster,
    tensor_parallel_fits_ranks,
    greedy_validation_is_not_repeated,
    gpu_only_options_have_a_gpu,
    cpu_offload_excludes_other_offloads,
    threads_are_for_workers_on_cpu,
    threads_have_cores,
    workers_have_cores,
    shared_sequences_are_packed,
    restarts_are_allowed,
    dealing_is_deterministic,
    *POOL_RULES,
)
