"""Read and check the data of the training jobs before any worker starts."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase

from verl_like.checks.families import reads_pictures
from verl_like.checks.hub_models import check_hub_models
from verl_like.checks.models import own_config
from verl_like.checks.requirements import check_machine
from verl_like.checks.rules import check
from verl_like.checks.validation import best_metric_problem
from verl_like.config.problems import refuse
from verl_like.config.reads import as_read, misplaced
from verl_like.config.schema import ActorConfig, Config, CriticConfig, DataConfig
from verl_like.context import current
from verl_like.controller.errors import Interrupt
from verl_like.data.files import EncodedRows
from verl_like.data.loader import PromptLoader, rehearse, rows_identity
from verl_like.data.pairs import PAIR_COLUMNS, scored_pair_rows
from verl_like.data.pictures import PictureTokens
from verl_like.data.preferences import PREFERENCE_COLUMNS, check_preferences, preference_rows
from verl_like.data.prompts import Prompt, PromptDataset
from verl_like.data.row_names import teachers_of
from verl_like.data.samplers import epoch_sampler
from verl_like.data.selection import train_rows, val_rows
from verl_like.data.templates import load_tokenizer
from verl_like.protocol import DataProto
from verl_like.remote_models import local_path
from verl_like.reward.scorer_messages import RowGroundTruth, Sample
from verl_like.reward.trial import try_reward
from verl_like.telemetry.startup import Startup
from verl_like.training.environment_trial import try_environment
from verl_like.training.role_rewards import roles_of
from verl_like.training.row_trainer import RowTask
from verl_like.training.sft_rows import SFT_COLUMNS, sft_rows


@dataclass(frozen=True, slots=True)
class TrainTask:
    """The prompts of a reinforcement-learning run."""

    tokenizer: PreTrainedTokenizerBase
    prompts: PromptDataset
    val_prompts: PromptDataset | None
    steps: int

    @property
    def data_sources(self) -> list[str]:
        return sorted({*self.prompts.data_sources, *(self.val_prompts.data_sources if self.val_prompts else [])})


def task_of(config: Config) -> TrainTask:
    """Read the prompts, after all checks that do not need them.

    Raises:
        ValueError: the configuration or data set cannot work.
    """
    check(config)
    check_machine(config, generates=True)
    check_hub_models(config)
    current(Startup).now("reading the data")
    tokenizer = tokenizer_of(config)
    prompts = train_prompts(config, tokenizer)
    val_prompts = held_out_prompts(config, tokenizer) if config.validates else None
    if val_prompts is not None:
        refuse(filter(None, [best_metric_problem(config, val_prompts.data_sources)]))
    for of_rows in (teachers_of, roles_of):
        of_rows(prompts, config)  # refuses rows without one
    rehearse(prompts, config.data, seed=config.trainer.seed)
    steps = num_steps(config, prompt_loader(config, prompts))  # refuses fewer rows than a batch has
    return TrainTask(tokenizer, prompts, val_prompts, steps)


ReadRows = Callable[[EncodedRows, DataConfig, PreTrainedTokenizerBase], tuple[DataProto, list[int]]]


def sft_task_of(config: Config) -> RowTask:
    """Read prompts with answers, conversations and texts, after all checks that do not need them.

    With ``sft.val_generate`` the validation rows are read as prompts too.

    Raises:
        ValueError: the configuration or data set cannot work.
    """
    read = partial(sft_rows, loss_on=config.sft.loss_on)
    columns = (config.data.prompt_key, config.data.answer_key, *SFT_COLUMNS)
    task = _row_task(config, read, job="sft", columns=columns)
    return replace(task, val_prompts=_prompts_of_validation(config)) if config.val_generates("sft") else task


def _prompts_of_validation(config: Config) -> PromptDataset:
    """Return the validation rows as prompts, like those of ``verl-like train``.

    Raises:
        ValueError: a row has no prompt or no ground truth, or no validation measures ``trainer.best_metric``.
    """
    try:
        prompts = held_out_prompts(config, tokenizer_of(config))
    except ValueError as error:
        raise ValueError(
            f"sft.val_generate=true generates from the rows of data.val_files, but {error} Or set "
            f"sft.val_generate=false to validate by the loss alone."
        ) from error
    refuse(filter(None, [best_metric_problem(config, prompts.data_sources)]))
    return prompts


def preference_task_of(config: Config) -> RowTask:
    """Read pairs of responses, or single responses with a label, as :func:`sft_task_of` reads answers."""
    read = partial(preference_rows, dpo=config.dpo)
    task = _row_task(config, read, job="dpo", columns=(config.data.prompt_key, *PREFERENCE_COLUMNS))
    check_preferences(task.rows, task.val_rows, config.dpo)
    return task


def scored_task_of(config: Config) -> RowTask:
    """Read pairs of texts for a model that scores them, as :func:`sft_task_of` reads answers."""
    if config.model.lora.rank:
        raise ValueError(
            f"model.lora.rank is {config.model.lora.rank}, but a reward model learns with all its weights: adapters "
            "would leave its new head at zero. Set model.lora.rank=0."
        )
    named = AutoConfig.from_pretrained(local_path(config.model.path), trust_remote_code=config.model.trust_remote_code)
    read = partial(scored_pair_rows, pad_id=named.get_text_config().to_dict().get("pad_token_id"))
    return _row_task(config, read, job="rm", columns=(config.data.prompt_key, *PAIR_COLUMNS))


def _row_task(config: Config, read: ReadRows, *, job: str, columns: Sequence[str]) -> RowTask:
    """Read the rows.

    Args:
        job: the command, of whose options rules are checked.
        columns: columns that distinguish rows.
    """
    refuse(misplaced(job, config))
    checked = as_read(job, config)
    check(checked, reads_prompts=False)
    if config.data.sampler:
        raise ValueError(
            f"data.sampler is {config.data.sampler}, but supervised training takes its rows in epochs "
            f"(data.shuffle, data.train_weights). Leave data.sampler empty."
        )
    check_machine(config, generates=config.val_generates(job))
    check_hub_models(checked)
    current(Startup).now("reading the data")
    data, seed, tokenizer = config.data, config.trainer.seed, tokenizer_of(config)
    given = _checked(train_rows(data, seed=seed))
    rows, file_numbers = read(given, data, tokenizer)
    sampler = epoch_sampler(file_numbers, data, seed=seed)
    return RowTask(
        rows=rows,
        sampler=sampler,
        steps=config.trainer.total_training_steps or config.trainer.total_epochs * sampler.batches_per_epoch,
        identity=rows_identity(given, data, columns=columns, num_kept=len(file_numbers), seed=seed),
        val_rows=read(_checked(val_rows(data)), data, tokenizer)[0] if config.validates else None,
        rows_per_item=len(rows) // len(file_numbers),
    )


def _checked(rows: EncodedRows) -> EncodedRows:
    rows.check()
    return rows


def check_reward(config: Config, prompts: PromptDataset | None, val_prompts: PromptDataset | None = None) -> None:
    """Try the environment and the reward on the first prompt of each data source, and the reward on every ground truth,
    before heavy work starts.
    """
    current(Interrupt).stop_before("start")
    current(Startup).now("trying the reward functions")
    # A uid is unique only within one data set.
    datasets = [(each, suffix) for each, suffix in ((prompts, ""), (val_prompts, " of data.val_files")) if each]
    first: dict[str, tuple[str, Prompt]] = {}
    for dataset, suffix in datasets:
        for prompt in dataset.first_of_each_source():
            first.setdefault(prompt.data_source, (f"{prompt.uid}{suffix}", prompt))
    episodes: list[dict[str, Any] | None] = [None] * len(first)
    if config.environment.is_used:
        current(Startup).now("trying the environment")
        episodes[:] = try_environment(config, tokenizer_of(config), [prompt for _, prompt in first.values()])
        current(Startup).now("trying the reward functions")
    samples = {
        name: Sample(
            response=str(p.ground_truth),
            prompt=p.text,
            messages=p.messages,
            data_source=p.data_source,
            ground_truth=p.ground_truth,
            extra_info=p.extra_info,
            columns=p.columns,
            response_ids=array("i", [0]),
            episode=episode,
        )
        for (name, p), episode in zip(first.values(), episodes, strict=True)
    }
    ground_truths = (
        (f"{uid}{suffix}", RowGroundTruth(source, truth))
        for dataset, suffix in datasets
        for uid, source, truth in dataset.ground_truths()
    )
    try_reward(config.scoring, samples, ground_truths, progress=_report_ground_truths)


def _report_ground_truths(num_read: int, num_truths: int) -> None:
    current(Interrupt).stop_before("start")
    if not num_read:
        current(Startup).now(f"reading {num_truths} ground truths")
    else:
        current(Startup).so_far(f"reading {num_truths} ground truths: {num_read} done")


def tokenizer_of(config: Config) -> PreTrainedTokenizerBase:
    return load_tokenizer(config.model.tokenizer, config.model.trust_remote_code)


def train_prompts(config: Config, tokenizer: PreTrainedTokenizerBase) -> PromptDataset:
    rows = train_rows(config.data, seed=config.trainer.seed)
    return _prompts(config, rows, tokenizer, has_privileged_teacher=bool(config.algorithm.self_distillation))


def held_out_prompts(config: Config, tokenizer: PreTrainedTokenizerBase) -> PromptDataset:
    return _prompts(config, val_rows(config.data), tokenizer)


def _prompts(
    config: Config, rows: EncodedRows, tokenizer: PreTrainedTokenizerBase, *, has_privileged_teacher: bool = False
) -> PromptDataset:
    return PromptDataset(
        rows,
        config.data,
        tokenizer,
        needs_ground_truth=config.needs_ground_truth,
        has_privileged_teacher=has_privileged_teacher,
        pictures=picture_tokens(config),
    )


def picture_tokens(config: Config) -> PictureTokens | None:
    """Return how many tokens the model gives to pictures; None if it reads text only."""
    if not reads_pictures(own_config(config.model.path)):
        return None
    from verl_like.backends.pictures import PictureReader  # imports torch, which the driver of a text model needs later

    return PictureReader(local_path(config.model.path), model=config.model)


def prompt_loader(config: Config, prompts: PromptDataset) -> PromptLoader:
    return PromptLoader(prompts, config.data, seed=config.trainer.seed)


def num_steps(config: Config, loader: PromptLoader) -> int:
    """Return the number of steps of the run."""
    return config.trainer.total_training_steps or config.trainer.total_epochs * loader.batches_per_epoch


def learner_updates(config: Config, steps: int) -> dict[str, int]:
    """Return the optimiser updates of actor and critic in ``steps`` steps."""

    def per_step(learner: ActorConfig | CriticConfig) -> int:
        return config.data.train_batch_size // learner.mini_batch_size * learner.epochs

    return {
        "actor_updates": max(steps - config.critic.warmup_steps, 1) * per_step(config.actor),
        "critic_updates": steps * per_step(config.critic),
    }
