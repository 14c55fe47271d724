"""Rules on validation: there are rows, and validation measures ``trainer.best_metric``."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verl_like.checks.gpus import Gpus
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion


def val_files_are_set(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.data.val_files:
        return
    for name, is_set in (
        ("trainer.val_only", config.trainer.val_only),
        ("trainer.test_freq", config.trainer.test_freq > 0),
        ("trainer.best_metric", bool(config.trainer.best_metric)),
    ):
        if is_set:
            yield (
                f"{name} is set, but data.val_files is empty, so there are no rows to validate on. "
                f"Set data.val_files=[path/to/val.parquet], or leave {name} at its default."
            )


def generation_has_a_validation(config: Config, gpus: Gpus) -> Iterator[str]:
    if not config.sft.val_generate or config.validates or config.trainer.val_only:
        return
    if not config.data.val_files:
        found, remedy = "data.val_files is empty", "data.val_files=[path/to/val.parquet]"
    else:
        found, remedy = "trainer.test_freq and trainer.val_before_train turn validation off", "trainer.test_freq=50"
    yield f"sft.val_generate is true, but {found}. Set {remedy}, or sft.val_generate=false."


def best_metric_is_measured(config: Config, gpus: Gpus) -> Iterator[str]:
    trainer = config.trainer
    if not trainer.best_metric or not config.data.val_files:
        return
    if not (config.validates or trainer.val_only):
        yield (
            f"trainer.best_metric is {trainer.best_metric}, but trainer.test_freq=0 and "
            "trainer.val_before_train=false turn validation off. Set trainer.test_freq, or leave trainer.best_metric "
            "empty."
        )
    problem = best_metric_problem(config)
    if problem:
        yield problem


def best_metric_problem(config: Config, sources: Collection[str] | None = None) -> str | None:
    """Return the problem of ``trainer.best_metric``; None if validation measures it.

    Args:
        config: the whole configuration.
        sources: the data sources of the validation rows; None while they are unknown.
    """
    found, n = config.trainer.best_metric, config.rollout.val.n
    kinds = [f"mean@{n}", f"pass@{n}", f"maj@{n}", "num_failed", "unreadable"]
    apart = sources if sources is not None and len(sources) > 1 else ()  # one source equals all rows
    names = ["val/loss"] * config.sft.val_generate
    names += [f"val/{source}{kind}" for source in ("", *(f"{s}/" for s in apart)) for kind in kinds]
    if not found or found in names:
        return None
    start, _, rest = found.partition("/")
    source, _, kind = rest.rpartition("/")
    if start == "val" and source and kind in kinds:
        # A detail is a number that the reward function reports with its score, so it is unknown before scoring.
        is_detail = kind == kinds[0] and any(source.startswith(f"{known}/") for known in sources or ())
        if sources is None or is_detail:
            return None
    more = f"val/<{'data source' if sources is None else 'one of these sources'}>/<detail>/{kinds[0]}"
    return (
        f"trainer.best_metric is {found!r}, but validation gives {', '.join(names)}, and {more} for each number that "
        f"the reward function reports{suggestion(found, names, cutoff=0.6) or '. Choose one of these.'}"
    )
