"""What the schedules share that generate while the policy learns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_like.data.prompts import Prompt
from verl_like.runs.schedule_record import StepRecord, read_schedule
from verl_like.training import stages
from verl_like.training.parts import StepParts
from verl_like.training.rollout_trainer import RolloutTrainer
from verl_like.training.step_metrics import Metrics
from verl_like.training.step_state import StepState
from verl_like.training.window import InFlight, PromptGroup, Window
from verl_like.workers.engine_pool import EnginePool


class WindowTrainer(RolloutTrainer):
    """A trainer whose engines generate the next batches while the policy learns from one."""

    def __init__(self, parts: StepParts, val_prompts: Sequence[Prompt] = ()) -> None:
        super().__init__(parts, val_prompts)
        trainer, engines = parts.config.trainer, parts.rollout
        assert isinstance(engines, EnginePool), "only engines in separate workers generate while the policy learns"
        self._engines = engines
        self._recorded: dict[int, StepRecord] = {}  # steps to repeat
        self._start = 0  # the last step before this start of the run
        self.window = Window(
            parts,
            engines,
            max_staleness=trainer.max_staleness,
            depth=trainer.pipeline_depth or trainer.max_staleness + 1,
            choose=self._chosen,
        )

    @staticmethod
    @abstractmethod
    def choose(found: InFlight, num_groups: int, step: int) -> list[PromptGroup] | None:
        """Choose the groups of a step; None to wait for more."""

    def _chosen(self, found: InFlight, num_groups: int, step: int) -> list[PromptGroup] | None:
        """Choose the groups of a step as in the run that is repeated, or by :meth:`choose`."""
        if (record := self._recorded.get(step)) is None:
            return self.choose(found, num_groups, step)
        groups = [PromptGroup(draw, position) for draw, position, *_ in record.groups]
        return groups if set(groups) <= set(found.finished) else None

    @property
    def num_in_flight(self) -> int:
        return super().num_in_flight + self.window.num_left

    def start(self) -> None:
        if path := self.parts.config.trainer.replay_schedule:
            if self._start:
                raise ValueError(
                    f"trainer.replay_schedule repeats a run from its beginning, but this one continues after step "
                    f"{self._start}. Choose another trainer.experiment_name, or leave trainer.replay_schedule empty."
                )
            records = read_schedule(Path(path).expanduser())
            self._recorded = {record.step: record for record in records}
            names = sorted({name for record in records for name in record.events})
            self._engines.follow(
                {name: [event for record in records for event in record.events.get(name, ())] for name in names}
            )
        super().start()

    def step(self, step: int) -> Metrics:
        parts, state = self.parts, self.open_step(step)
        self.window.fill(step=step, version=self.version)
        batch = self.window.take(state)
        groups = self.window.taken(batch)
        for take in stages.LEARNING:
            batch = take(parts, state, batch)
        events = self._engines.take_events()
        parts.schedule.write(StepRecord(step=step, start=self._start, groups=groups, events=events))
        self.window.fill(step=step + 1, version=state.version)
        return self.close_step(state)

    def close_step(self, state: StepState) -> Metrics:
        metrics = super().close_step(state)
        self.loader_state = self.window.loader_state()
        return metrics

    def state(self) -> dict[str, Any]:
        return {**super().state(), "window": self.window.state()}

    def load(self, state: dict[str, Any], path: Path) -> None:
        state = dict(state)
        self._start = state["step"]
        self.window.load(state.pop("window", {"next": state["step"] + 1, "left": {}}))
        super().load(state, path)

    def truncate_after(self, step: int) -> None:
        super().truncate_after(step)
        self.parts.schedule.truncate_after(step)
