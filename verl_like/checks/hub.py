"""Models with hub names: their config.json is fetched before Ray starts, so that a wrong name is told at once."""

from __future__ import annotations

from verl_like.checks.models import named_models
from verl_like.checks.paths import is_local_path
from verl_like.checks.rules import contradictions
from verl_like.config.problems import refuse
from verl_like.config.schema import Config


def check_hub_models(config: Config) -> None:
    """Refuse hub names that cannot be reached, and then what the rules say, who can read more now.

    Raises:
        Refused: all that is wrong.
    """
    names = {knob: path for knob, path in named_models(config).items() if not is_local_path(path)}
    if not names:
        return
    from huggingface_hub import hf_hub_download  # half a second, and only where there is a hub name

    problems = []
    for knob, name in names.items():
        try:
            hf_hub_download(name, "config.json")
        except (OSError, ValueError) as error:  # no such model, no access, no network and not in the cache
            problems.append(
                f"{knob} is {name}, but the hub gave no config.json of that name ({str(error).splitlines()[0]}). "
                "Correct the name or give a folder; where a model needs permission, run `hf auth login`."
            )
    refuse(problems or contradictions(config))
