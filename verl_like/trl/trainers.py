"""TRL's trainers: each makes a configuration of its arguments and runs the job of a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from verl_like.trl.arguments import (
    Arguments,
    DPOConfig,
    GRPOConfig,
    RewardArguments,
    SFTConfig,
    own_arguments,
    plain_values,
)
from verl_like.trl.refused import missing_attribute, refuse_others
from verl_like.trl.results import MainProcess, TrainerState, TrainOutput, log_history, output, write_metrics

if TYPE_CHECKING:
    from verl_like.config.schema import Config
    from verl_like.trl.rows import DatasetRows


class RunTrainer:
    """Runs a job with the arguments of TRL.

    ``config`` is the run's configuration, and may be changed before ``train()``.

    Args:
        model: folder or hub name.
        args: the trainer's configuration; TRL's own class is read too.
        train_dataset: a ``datasets.Dataset``, a table of pandas, pyarrow or polars, a list of dicts, or file names.
        processing_class: the tokenizer, or its folder or hub name; by default that of the model.
        peft_config: peft's LoraConfig.
        others: TRL's other arguments, which are refused unless they are None.

    Raises:
        ValueError: arguments that cannot work or have no equivalent; the message lists them.
        TypeError: unknown arguments.
    """

    job: ClassVar[str]
    loss: ClassVar[str]
    suffix: ClassVar[str]
    arguments: ClassVar[type[Arguments]]

    def __init__(
        self,
        model: str | Path,
        args: Any = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        *,
        peft_config: Any = None,
        **others: Any,
    ) -> None:
        self.args = own_arguments(args, self.arguments) if args is not None else self._default_arguments(model)
        values = self._values(others)
        refuse_others(type(self).__name__, {**others, "data_collator": data_collator})
        self.state, self.accelerator = TrainerState(), MainProcess()
        self._processing_class = processing_class
        if train_dataset is None:
            raise ValueError(f"train_dataset is None, but {type(self).__name__} needs rows. Pass a data set.")
        self.config = self._config(
            {"model.path": model_name(model), **values}, train_dataset, eval_dataset, peft_config=peft_config
        )

    def _default_arguments(self, model: str | Path) -> Arguments:
        return self.arguments(f"{model_name(model).rstrip('/').rpartition('/')[2]}-{self.suffix}")

    def _values(self, others: dict[str, Any]) -> dict[str, Any]:
        """Take the arguments of one trainer out of ``others``; return the options that they set."""
        return {}

    def _of_rows(self, rows: DatasetRows) -> dict[str, Any]:
        """Return values of the rows that the translation of the arguments reads."""
        return {"num_rows": rows.number}

    def _config(self, values: Mapping[str, Any], train_dataset: Any, eval_dataset: Any, *, peft_config: Any) -> Config:
        from verl_like.checks.cluster import only_on_gpus
        from verl_like.checks.gpus import num_gpus
        from verl_like.config.foreign_command import read_arguments
        from verl_like.config.problems import refuse
        from verl_like.from_python import is_object
        from verl_like.trl.adapters import lora_options
        from verl_like.trl.rows import rows_of

        rows = rows_of(train_dataset, job=self.job, name="train_dataset")
        objects = {"data.train_files": rows.given}
        if eval_dataset is not None:
            objects["data.val_files"] = rows_of(eval_dataset, job=self.job, name="eval_dataset").given
        elif self.args.eval_strategy != "no":
            raise ValueError(f"eval_strategy is {self.args.eval_strategy}, but there is no eval_dataset. Pass one.")
        own = {**values, **rows.options, **lora_options(peft_config)}
        objects |= {name: own.pop(name) for name, value in values.items() if is_object(name, value)}
        given = plain_values(self.args)
        devices = 1 if given.get("use_cpu") else max(num_gpus(), 1)
        config, problems = read_arguments(
            self.arguments.interface,
            given,
            {"num_devices": devices, **self._of_rows(rows)},
            [(name, value, type(self).__name__) for name, value in own.items()],
            only_on_gpus=only_on_gpus,
        )
        refuse(problems)
        for name, value in objects.items():
            section, _, field = name.partition(".")
            setattr(vars(config)[section], field, value)
        return config

    def _prepared(self) -> Config:
        """Return the configuration with the tokenizer's folder, which is written below the run's folder."""
        from verl_like.runs.folder import RunFolder
        from verl_like.trl.tokenizers import tokenizer_path

        if self._processing_class is not None:
            folder = RunFolder(self.config).from_python
            self.config.model.tokenizer_path = tokenizer_path(self._processing_class, folder)
        return self.config

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> TrainOutput:
        """Train to the last step; continue if the run's folder, ``output_dir``, has a checkpoint of this run.

        Args:
            resume_from_checkpoint: a checkpoint's folder.

        Raises:
            ValueError: the configuration, a data set or the folder is invalid; nothing was started.
            RunError, StageTimeout, DiskRefused: the run ended early.
        """
        from verl_like import scripting

        config = self._prepared()
        if isinstance(resume_from_checkpoint, (str, Path)):
            config = replace(config, trainer=replace(config.trainer, resume=str(resume_from_checkpoint)))
        is_train = self.job == "train"
        done = scripting.train(config) if is_train else scripting.train_on_rows(config, job=self.job)
        history = log_history(done.metrics.to_pylist(), loss=self.loss)
        self.state = TrainerState(done.step, history)
        return output(history, step=done.step, folder=done.folder)

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Refuse other attributes of TRL's trainers, with what to use instead."""
            raise missing_attribute(type(self).__name__, name)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return the metrics of a validation by the names of docs/metrics.md, and its loss, if any, as ``eval_loss``.

        Args:
            eval_dataset, ignore_keys, metric_key_prefix: TRL's, which keep their defaults.

        Raises:
            ValueError: another argument, or the run has not validated.
        """
        if (eval_dataset, ignore_keys, metric_key_prefix) != (None, None, "eval"):
            raise ValueError(
                "evaluate() got arguments, but validates on the trainer's eval_dataset under the names of "
                "docs/metrics.md. Pass eval_dataset to the trainer, and call evaluate() without arguments."
            )
        found = self._validation()
        return {**found, "eval_loss": found["val/loss"]} if "val/loss" in found else found

    def _validation(self) -> dict[str, float]:
        """Return the metrics of the last validation of the run."""
        validations: list[dict[str, float]] = [
            {name: value for name, value in row.items() if name.startswith("val/")} for row in self.state.log_history
        ]
        found = next((each for each in reversed(validations) if each), None)
        if found is None:
            raise ValueError(
                f"{type(self).__name__} has no validation; expected one of train(). Pass eval_dataset, set "
                "eval_strategy='steps' and call train()."
            )
        return found

    def save_model(self, output_dir: str | Path | None = None) -> None:
        """Write the trained model into a folder, by default ``args.output_dir``; adapters are merged into the weights.

        Raises:
            ValueError: no run has ended.
        """
        from shutil import copytree

        from verl_like.disk import writing
        from verl_like.runs.folder import RunFolder

        source = RunFolder(self.config).model
        if not source.is_dir():
            raise ValueError(f"there is no model in {source}; expected that of a finished run. Call train() first.")
        target = Path(output_dir or self.args.output_dir or source)
        with writing(target, option="output_dir"):
            if target.resolve() != source.resolve():
                copytree(source, target, dirs_exist_ok=True)

    def log_metrics(self, split: str, metrics: Mapping[str, Any]) -> None:
        """Log metrics, such as those of ``train()`` and ``evaluate()``, under the name ``split``."""
        self.accelerator.print(f"{split} metrics: {', '.join(f'{name}={value}' for name, value in metrics.items())}")

    def save_metrics(self, split: str, metrics: Mapping[str, Any], combined: bool = True) -> None:
        """Write metrics into ``SPLIT_results.json`` of the run's folder.

        Args:
            combined: also add them to ``all_results.json``.

        Raises:
            DiskRefused: a file cannot be written.
        """
        from verl_like.runs.folder import RunFolder

        write_metrics(RunFolder(self.config).path, split, metrics, combined=combined)

    def is_world_process_zero(self) -> bool:
        return self.accelerator.is_main_process

    def push_to_hub(self, *arguments: Any, **options: Any) -> None:
        """Refuse to publish a model.

        Raises:
            ValueError: always.
        """
        raise ValueError("nothing is pushed to the hub. Call save_model(folder), and `hf upload REPOSITORY folder`.")

    def end(self) -> None:
        """Do nothing: a run closes its trackers itself."""


class SFTTrainer(RunTrainer):
    """Runs ``verl-like sft``: rows have the columns prompt and completion, or messages, or text."""

    job, loss, suffix, arguments = "sft", "sft/loss", "SFT", SFTConfig

    def _of_rows(self, rows: DatasetRows) -> dict[str, Any]:
        return {**super()._of_rows(rows), "row_form": rows.form}


class RewardTrainer(RunTrainer):
    """Runs ``verl-like rm``: rows have the columns chosen and rejected."""

    job, loss, suffix, arguments = "rm", "rm/loss", "Reward", RewardArguments


class DPOTrainer(RunTrainer):
    """Runs ``verl-like dpo``: rows have the columns chosen and rejected.

    Args:
        ref_model: folder or hub name of the reference; by default the initial weights of the model.
    """

    job, loss, suffix, arguments = "dpo", "dpo/loss", "DPO", DPOConfig

    def __init__(self, model: str | Path, ref_model: Any = None, args: Any = None, **others: Any) -> None:
        super().__init__(model, args, ref_model=ref_model, **others)

    def _values(self, others: dict[str, Any]) -> dict[str, Any]:
        reference = others.pop("ref_model")
        return {} if reference is None else {"dpo.ref_path": model_name(reference, "ref_model")}


class GRPOTrainer(RunTrainer):
    """Runs ``verl-like train``: rows have a column prompt, and reward functions get the others by name.

    Args:
        reward_funcs: one or several functions of TRL's form, or the folder of a reward model among them.
    """

    job, loss, suffix, arguments = "train", "actor/loss", "GRPO", GRPOConfig

    def __init__(
        self,
        model: str | Path,
        reward_funcs: Any = None,
        args: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        **others: Any,
    ) -> None:
        super().__init__(
            model,
            args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            reward_funcs=reward_funcs,
            **others,
        )

    def _values(self, others: dict[str, Any]) -> dict[str, Any]:
        from verl_like.trl.rewards import reward_values

        return reward_values(others.pop("reward_funcs"), plain_values(self.args).get("reward_weights"))

    def _validation(self) -> dict[str, float]:
        """Validate the newest checkpoint of the run, like ``verl-like eval``, and return the metrics."""
        from verl_like import scripting

        return scripting.evaluate(self._prepared())


def model_name(model: Any, argument: str = "model") -> str:
    """Return the folder or hub name of a model.

    Raises:
        ValueError: it is an object.
    """
    if not isinstance(model, (str, Path)):
        raise ValueError(
            f"{argument} is a {type(model).__name__}; expected a folder or hub name, because worker processes load it. "
            "Pass its name, or call save_pretrained(folder) and pass the folder."
        )
    return str(model)
