"""Models with hub names or URLs: fetched before workers load them, so that a wrong name is told at once."""

from __future__ import annotations

import os

from verl_like.checks.models import named_models
from verl_like.checks.paths import is_local_path
from verl_like.checks.rules import contradictions
from verl_like.config.problems import refuse
from verl_like.config.schema import Config
from verl_like.remote import is_remote
from verl_like.remote_models import copied_folder, here, lacking_at
from verl_like.single_controller.errors import INTERRUPT
from verl_like.telemetry.startup import STARTUP


def check_hub_models(config: Config) -> None:
    """Refuse hub names and URLs that cannot be reached, and then what the rules say, who can read more now.

    Of a hub name the ``config.json`` is fetched; a model or tokenizer at a URL is copied here, where that was not done
    before, once its store lists all that it needs.

    Raises:
        Refused: all that is wrong.
    """
    names = {knob: path for knob, path in named_models(config).items() if not is_local_path(path)}
    tokenizer = config.model.tokenizer_path
    if not names and not is_remote(tokenizer):
        return
    problems = [
        _unreachable_url(knob, name, needs_weights=True) if is_remote(name) else _unreachable_name(knob, name)
        for knob, name in names.items()
    ]
    if is_remote(tokenizer):
        problems.append(_unreachable_url("model.tokenizer_path", tokenizer, needs_weights=False))
    refuse([problem for problem in problems if problem] or contradictions(config))


def _unreachable_url(knob: str, url: str, *, needs_weights: bool) -> str | None:
    try:
        if needs_weights and (lacking := lacking_at(url)):
            return f"{knob} is {url}, a folder without {lacking}"
        if not copied_folder(url).is_dir():
            STARTUP.now(f"copying {url} to {copied_folder(url)}")
        here(url, lambda: INTERRUPT.stop_before("start"))
    except Exception as error:  # noqa: BLE001 (of any store's library)
        return (
            f"{knob} is {url}, which cannot be copied here ({type(error).__name__}: {error}). Correct the URL, or look "
            "at the store's credentials and address."
        )
    return None


def _unreachable_name(knob: str, name: str) -> str | None:
    from huggingface_hub import hf_hub_download  # half a second, and only where there is a hub name

    try:
        hf_hub_download(name, "config.json")
    except (OSError, ValueError) as error:  # no such model, no access, no network and not in the cache
        elsewhere = (
            " VERL_USE_MODELSCOPE is verl's: `modelscope download` a model, and give the folder."
            if os.environ.get("VERL_USE_MODELSCOPE", "").lower() in ("1", "true", "yes")
            else ""
        )
        return (
            f"{knob} is {name}, but the hub gave no config.json of that name ({str(error).splitlines()[0]}). "
            "Correct the name or give a folder; where a model needs permission, run `hf auth login`; where the hub is "
            f"out of reach, name a mirror in HF_ENDPOINT.{elsewhere}"
        )
    return None
