"""Run the job of a command in a launched run: this imports Ray, and the job's libraries once the run is launched."""

from __future__ import annotations

from verl_like.arguments import ON_ROWS
from verl_like.config.compose import Composed
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.imports import importing
from verl_like.runs.folder import RunFolder
from verl_like.runs.launch import Launcher
from verl_like.runs.start import policy_checkpoint
from verl_like.runs.status import outputs_of, shown
from verl_like.telemetry.startup import Startup


def run_launched(
    command: str, composed: Composed, launched: Config, *, generates: bool, is_training: bool, row: int
) -> str:
    """Launch the run and run the job in it; return the text to print at the end.

    Args:
        launched: the configuration as the command reads it.
        generates: whether workers have rollout engines.
        row: number of the prompt that ``play`` takes.
    """
    config, folder = composed.config, RunFolder(composed.config)
    with current(Launcher).launching(launched, generates=generates):
        current(Startup).now("loading transformers")
        with importing():
            from verl_like.training import jobs, policy_jobs, row_jobs

        if command == "play":
            from verl_like.training.play import play_by_model

            return play_by_model(config, row)
        if command == "generate":
            return str(policy_jobs.generate_responses(config))
        if not is_training:
            policy = policy_checkpoint(config)
            found = [f"{name} {value:.4f}" for name, value in policy_jobs.evaluate(config).items()]
            found.append(f"policy      {shown(policy) if policy is not None else config.model.path}")
            return "\n".join([*found, f"responses   {shown(folder.eval)}"])
        if command in ON_ROWS:
            row_jobs.train_on_rows(config, composed.yaml(), job=command)
        else:
            prompts = jobs.train(config, composed.yaml()).prompts
            if prompts.drawn:
                return f"prompts     {prompts}\n{outputs_of(folder)}"
        return outputs_of(folder)
