"""Checks of models with hub names or URLs before workers load them, so that a wrong name is reported at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from verl_like import hub
from verl_like.checks.models import hub_cache, named_models
from verl_like.checks.paths import is_local_path
from verl_like.checks.rules import contradictions
from verl_like.config.problems import refuse
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import Interrupt
from verl_like.data.hub_datasets import is_on_hub
from verl_like.remote import is_remote
from verl_like.remote_models import copied_folder, lacking_at, local_path
from verl_like.telemetry.startup import Startup

log = logging.getLogger(__name__)


def hub_problems(config: Config) -> Iterator[str]:
    """Yield a problem for each model or tokenizer that is only on the hub if the hub is unreachable.

    If the hub is unreachable but its cache has them all, this process and its children read only the cache.
    """
    tokenizer = config.model.tokenizer_path
    named = named_models(config) | ({"model.tokenizer_path": tokenizer} if tokenizer else {})
    names = {option: path for option, path in named.items() if not is_local_path(path) and not is_remote(path)}
    tables = [entry for entry in (*config.data.train_files, *config.data.val_files) if is_on_hub(entry)]
    if not (names or tables) or hub.is_offline() or (reason := hub.out_of_reach()) is None:
        return
    found = [(option, name) for option, name in names.items() if not hub_cache(name).is_dir()]
    for option, name in found:
        yield (
            f"{option} is {name}, which is no folder here, but the hub at {hub.endpoint()} is out of reach ({reason}) "
            "and its cache has no such model. Name a folder, or a mirror in HF_ENDPOINT."
        )
    if not found:
        log.warning(
            "the hub at %s is unreachable (%s): only its cache is read (HF_HUB_OFFLINE=1)", hub.endpoint(), reason
        )
        hub.go_offline()


def check_hub_models(config: Config) -> None:
    """Refuse unreachable hub names and URLs, then apply the rules again, with the fetched files.

    For a hub name, ``config.json`` is fetched. A model or tokenizer at a URL is copied to this machine, unless it was
    copied before, after its store has listed all required files.

    Raises:
        Refused: all problems.
    """
    refuse(hub_problems(config))
    names = {option: path for option, path in named_models(config).items() if not is_local_path(path)}
    tokenizer = config.model.tokenizer_path
    if not names and not is_remote(tokenizer):
        return
    problems = [
        _unreachable_url(option, name, needs_weights=True) if is_remote(name) else _unreachable_name(option, name)
        for option, name in names.items()
    ]
    if is_remote(tokenizer):
        problems.append(_unreachable_url("model.tokenizer_path", tokenizer, needs_weights=False))
    refuse([problem for problem in problems if problem] or contradictions(config))


def _unreachable_url(option: str, url: str, *, needs_weights: bool) -> str | None:
    try:
        if needs_weights and (lacking := lacking_at(url)):
            return f"{option} is {url}, a folder without {lacking}"
        if not copied_folder(url).is_dir():
            current(Startup).now(f"copying {url} to {copied_folder(url)}")
        local_path(url, lambda: current(Interrupt).stop_before("start"))
    except Exception as error:  # noqa: BLE001 (any store's library may raise anything)
        return (
            f"{option} is {url}, which cannot be copied here ({type(error).__name__}: {error}). Correct the URL, or "
            "check the store's credentials and address."
        )
    return None


def _unreachable_name(option: str, name: str) -> str | None:
    from huggingface_hub import hf_hub_download  # takes 0.5 s to import, needed only for hub names

    try:
        hf_hub_download(name, "config.json")
    except (OSError, ValueError) as error:  # no such model, no access, no network and not in the cache
        elsewhere = (
            " VERL_USE_MODELSCOPE is verl's: `modelscope download` a model, and give the folder."
            if os.environ.get("VERL_USE_MODELSCOPE", "").lower() in ("1", "true", "yes")
            else ""
        )
        return (
            f"{option} is {name}, but the hub gave no config.json of that name ({str(error).splitlines()[0]}). "
            "Correct the name or give a folder; where a model needs permission, run `hf auth login`; where the hub is "
            f"out of reach, name a mirror in HF_ENDPOINT.{elsewhere}"
        )
    return None
