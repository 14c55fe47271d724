"""The reinforcement-learning loop: one step, top to bottom, in :meth:`PPOTrainer.step`."""

from __future__ import annotations

import logging
import math
import time
from copy import copy
from dataclasses import asdict
from functools import partial

import numpy as np

from verl_like.algorithms.roles import needs, step_columns, update_columns
from verl_like.config.schema import Config
from verl_like.controller.errors import INTERRUPT, FeedbackError, Interrupted
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.data.custom_sampler import SamplerError
from verl_like.data.loader import PromptLoader
from verl_like.data.prompts import Prompt
from verl_like.plan.run_plan import RunPlan
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.folder import RunFolder
from verl_like.runs.saving import Saves
from verl_like.telemetry.ledger import LEDGER, stage
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.startup import STARTUP
from verl_like.telemetry.trackers import Trackers, read_metrics
from verl_like.training.balance import Balance, by_rank, by_reader, plan
from verl_like.training.build import Stack
from verl_like.training.collapse import CollapseWatch
from verl_like.training.generation import generate, greedy_sampling, train_sampling
from verl_like.training.process_metrics import ProcessBooks
from verl_like.training.profiling import Profiles
from verl_like.training.progress import Progress, Steering
from verl_like.training.prompt_ledger import num_prompts
from verl_like.training.samples import Samples
from verl_like.training.score_advantages import score_advantages
from verl_like.training.shaping import groups_with_signal, is_usable, learnt_from, row_rewards
from verl_like.training.step_metrics import Metrics, StepMetrics, num_tokens
from verl_like.training.step_snapshots import Capsules
from verl_like.training.store_meter import StoreMeter
from verl_like.training.validation import validate
from verl_like.workers.messages import UpdateTerms

log = logging.getLogger(__name__)


class PPOTrainer:
    """Trains the actor (and the critic, where the advantage needs one) on the prompts of ``loader``.

    Args:
        run_plan: what was planned of memory and work, if anything was.
    """

    def __init__(
        self,
        config: Config,
        parts: Stack,
        folder: RunFolder,
        loader: PromptLoader,
        val_prompts: list[Prompt],
        trackers: Trackers,
        total_steps: int,
        run_plan: RunPlan | None = None,
    ) -> None:
        self.config, self.parts, self.folder, self.loader = config, parts, folder, loader
        self.val_prompts, self.trackers, self.total_steps = val_prompts, trackers, total_steps
        self.needs = needs(config)
        self.progress = Progress()
        self.prompts = copy(self.progress.prompts)  # with those of the step in progress
        self.steering = Steering(kl_coef=config.algorithm.kl_coef)
        # After the last finished step, as prompts of an unfinished one come again; and with those of the latter.
        self.loader_state = self.next_loader_state = loader.state_dict()
        self.checkpoints = Checkpoints(folder.checkpoints, config.trainer.max_checkpoints)
        limits = RecordLimits(config.trainer.max_records_gib)
        self.capsules = Capsules(folder.capsules, config.trainer.num_capsules, parts.rewards, limits)
        self.samples = Samples(folder.samples, config.trainer.num_samples_to_save, parts.rewards, trackers, limits)
        self.saves = Saves(
            self.checkpoints,
            actor=parts.actor,
            critic=parts.critic,
            is_async=config.trainer.async_save,
            timeout_s=config.trainer.stage_timeout_s,
        )
        self.ranks = parts.devices.world_size
        sizes = [config.actor.mini_batch_size, *[config.critic.mini_batch_size] * self.needs.critic]
        self.balance = Balance(
            math.gcd(*sizes),
            self.ranks,
            nodes=parts.devices.num_nodes,
            by=config.trainer.balance_by,
            shares_prompts=config.model.share_prompts and config.model.remove_padding,
        )
        self.store = StoreMeter()
        self.collapse = CollapseWatch()
        self.run_plan = run_plan
        self.books = ProcessBooks(folder.path, parts.processes, run_plan.peak_bytes if run_plan else 0.0, limits)
        self.profiles = Profiles(folder.profile, parts.processes, config.trainer.profile_steps)

    def fit(self) -> Progress:
        """Run to the last step, or to Ctrl-C; either way the newest state is in a checkpoint when this returns."""
        self.resume()
        STARTUP.now("copying the weights to the engine")
        self.version = self.parts.rollout.sync().version
        with self.saves:
            self.take_steps()
        self.samples.show()
        self.books.write_table()
        return self.progress

    def take_steps(self) -> None:
        """Validate, take all steps that are left, and save where that is due."""
        try:
            if self.is_validation_due():
                STARTUP.now(f"validating on {len(self.val_prompts)} prompts")
                self.trackers.log(self.progress.step, self.validate())
                if self.is_save_due():
                    self.save()
            STARTUP.now("taking the first step")
            while self.progress.step < self.total_steps and not INTERRUPT.is_set():
                with self.profiles.of(self.progress.step + 1):
                    metrics = self.step(self.progress.step + 1)
                self.finish(metrics)
        except Interrupted as interrupted:
            log.warning(
                "interrupted in %s; what was unfinished is dropped and comes again (%d prompts)",
                interrupted,
                self.prompts.in_flight,
            )
        except (FeedbackError, SamplerError):  # the policy is that of the last step counted in
            self.save_unless_saved()
            self.saves.finish()
            raise
        self.save_unless_saved()

    def finish(self, metrics: Metrics) -> None:
        """Count a step in, validate and save where it is time."""
        self.prompts.check(drawn=self.loader.num_drawn)
        self.progress.prompts = self.prompts
        self.progress.step += 1
        self.progress.seconds += metrics["time/step_s"]
        self.progress.tokens += int(metrics["perf/tokens"])
        num_responses = self.config.data.train_batch_size * self.config.rollout.n
        self.steering = self.steering.after(metrics, self.config.algorithm, num_responses=num_responses)
        self.loader_state = self.next_loader_state
        self.capsules.finish(self.progress.step, metrics)
        try:
            if self.is_validation_due():
                metrics |= self.validate()
        finally:  # whatever becomes of the validation, the step took place
            self.trackers.log(self.progress.step, metrics | self.saves.take_metrics())
        self.collapse.add(self.progress.step, metrics)
        self.saves.look()
        if self.is_save_due():
            self.save()

    def step(self, step: int) -> Metrics:
        """One round of reinforcement learning on one batch of prompts."""
        LEDGER.take()
        self.prompts = copy(self.progress.prompts)
        metrics = StepMetrics()
        self.capsules.begin(step, self.steering, version=self.version, loader=self.loader_state)
        batch = self.rollout(step, metrics)
        self.log_probs(batch, metrics)
        batch = self.score(batch, metrics)
        self.next_loader_state = self.loader.state_dict()
        batch = self.advantages(batch, step, metrics)
        self.capsules.fill(step, batch)
        self.learn(batch, step, metrics)
        self.sync(batch, metrics)
        metrics.add(self.prompts.metrics() | self.loader.metrics())
        metrics.add({"progress/epoch": step / self.loader.batches_per_epoch, "progress/unix_s": time.time()})
        return metrics.finish(LEDGER.take(), self.run_plan)

    def log_probs(self, batch: RemoteBatch, metrics: StepMetrics) -> None:
        """What the models say of the responses: old and reference log-probs and values."""
        parts = self.parts
        with stage("balance"):
            self.balance.assign(batch)
            rows = by_rank(batch, self.ranks)
        if self.needs.old_log_probs:
            with stage("old_log_probs"):
                reports = parts.actor.add_log_probs(batch, rows, sum_pi_squared=self.needs.sum_pi_squared)
                metrics.add_log_prob_gap(reports)
        if parts.ref is not None:
            with stage("ref_log_probs"):
                parts.ref.add_log_probs(batch, rows)
        if parts.critic is not None:
            with stage("values"):
                parts.critic.add_values(batch, rows)

    def score(self, batch: RemoteBatch, metrics: StepMetrics) -> RemoteBatch:
        """The rows with their scores, once all have come."""
        with stage("reward_wait"):
            batch = batch.with_facts(self.parts.rewards.scores(batch).facts)
            metrics.add_rewards(batch)
            if not self.config.algorithm.filter_groups:  # which has told it of all that was drawn
                self.loader.feedback(batch.facts["uid"], batch.facts["score"])
        return batch

    def advantages(self, scored: RemoteBatch, step: int, metrics: StepMetrics) -> RemoteBatch:
        """The rows that are learnt from, with their advantages; some responses begin to be written down."""
        config, parts, usable = self.config, self.parts, is_usable(scored)
        batch = scored.select(usable)
        self.prompts.leave(num_prompts(batch), "failed")
        with stage("advantages"):
            earned = row_rewards(
                batch, config, mini_batch_prompts=config.actor.mini_batch_size if self.needs.covariance_rank else None
            )
            if parts.advantages is None:
                facts, found = score_advantages(earned, batch.facts["response_tokens"], config.algorithm)
            else:
                facts, found = parts.advantages.add(
                    batch,
                    by_reader(batch, parts.devices.nodes, self.needs.advantage_columns),
                    earned,
                    adds=self.needs.advantage_columns,
                    kl_coef=self.steering.kl_coef,
                )
            batch.add_facts(facts)
            self.samples.write(step, scored, usable, facts)
            metrics.add({"reward/shaped_mean": float(earned.rewards.mean()), **found})
            if config.algorithm.kl_target > 0:
                metrics.add({"reward/kl_coef": self.steering.kl_coef})
            batch = batch.select(learnt_from(batch, config, np.random.default_rng((config.trainer.seed, step))))
        self.prompts.leave(num_prompts(batch), "filtered")
        return batch

    def learn(self, batch: RemoteBatch, step: int, metrics: StepMetrics) -> None:
        """The updates of the critic and, once that has warmed up, of the actor."""
        config, parts = self.config, self.parts
        with stage("balance"):
            imbalance = self.balance.assign(batch, skips_zeros=config.actor.skip_zero_advantages)
            metrics.add({"balance/imbalance": imbalance})
        if parts.critic is not None:
            with stage("update_critic"):
                shares = plan(batch, mini_batch_prompts=config.critic.mini_batch_size, ranks=self.ranks)
                metrics.add_mean(parts.critic.update(batch, shares.rows, shares.mini_batches))
                batch.drop({"values", "returns"})
        elif config.actor.skip_zero_advantages:
            self.prompts.leave(num_prompts(batch, batch.facts["has_advantage"]), "filtered")
        if step > config.critic.warmup_steps:
            with stage("update_actor"):
                shares = plan(batch, mini_batch_prompts=config.actor.mini_batch_size, ranks=self.ranks)
                terms = UpdateTerms(
                    columns=update_columns(config),
                    mean_weight=metrics.mean_weight,
                    is_corrected=self.steering.is_corrected(config, gap_now=metrics.log_prob_gap),
                )
                metrics.add_update(parts.actor.update(batch, shares.rows, shares.mini_batches, terms))
                skips_zeros = config.actor.skip_zero_advantages
                metrics.learnt_tokens = config.actor.epochs * num_tokens(batch, skips_zeros=skips_zeros)
        self.prompts.leave(0, "trained")

    def sync(self, batch: RemoteBatch, metrics: StepMetrics) -> None:
        """Give the engines the new weights, and look at what the step left in the store."""
        with stage("sync"):
            self.books.ask()
            self.store.ask()
            found = self.parts.rollout.sync()
        self.version = found.version
        metrics.add(found.metrics)
        self.capsules.settle()
        with stage("report"):
            metrics.add(self.store.take(batch))
            metrics.add(self.books.close_step(self.progress.step + 1))

    def rollout(self, step: int, metrics: StepMetrics) -> RemoteBatch:
        """The step's responses; where groups are filtered, of as many draws as it takes, with their scores."""
        config = self.config
        self.parts.rewards.forget()  # the last step's
        if config.algorithm.filter_groups:
            batch, found = groups_with_signal(
                lambda draw: self.scored(self.draw(step, draw)),
                num_groups=config.data.train_batch_size,
                max_batches=config.algorithm.max_num_gen_batches,
            )
            metrics.add(found)
            self.prompts.leave(config.data.train_batch_size, "filtered")
        else:
            batch = self.draw(step)
        metrics.add_rollout(batch)
        self.store.check(batch, step_columns(config))
        with stage("engine_sleep"):
            self.parts.rollout.sleep()
        return batch

    def draw(self, step: int, draw: int = 0) -> RemoteBatch:
        """The next prompts and their responses, with scoring under way; ``draw`` counts the draws of the step."""
        config, rollout, rewards = self.config, self.parts.rollout, self.parts.rewards
        with stage("prompts"):
            prompts = self.loader.next_batch()
            self.prompts.draw(len(prompts))
        with stage("rollout"):
            batch = generate(
                prompts,
                rollout=rollout,
                begin=rewards.begin,
                n=config.rollout.n,
                sampling=train_sampling(config),
                step=step,
                version=self.version,
                first_sample=draw * config.rollout.n,
            )
            if self.needs.baseline:
                generate(
                    prompts,
                    rollout=rollout,
                    begin=partial(rewards.begin, is_baseline=True),
                    n=1,
                    sampling=greedy_sampling(config),
                    step=step,
                    version=self.version,
                )
        return batch

    def scored(self, batch: RemoteBatch) -> RemoteBatch:
        """The batch with its scores, for the choice of groups; :meth:`score` asks for those of the chosen rows anew."""
        with stage("reward_wait"):
            batch = batch.with_facts(self.parts.rewards.scores(batch).facts)
        self.loader.feedback(batch.facts["uid"], batch.facts["score"])
        self.prompts.book(num_prompts(batch) - num_prompts(batch, is_usable(batch)), "failed")
        return batch

    def is_validation_due(self) -> bool:
        """Whether this moment's policy is to be validated and was not; a run interrupted in between makes up for it."""
        trainer, step = self.config.trainer, self.progress.step
        if not self.val_prompts or self.progress.last_val_step == step:
            return False
        if step == 0:
            return trainer.val_before_train
        return step == self.total_steps or (trainer.test_freq > 0 and step % trainer.test_freq == 0)

    def is_save_due(self) -> bool:
        """Whether this moment's policy is the best so far, or every so many steps."""
        every, step = self.config.trainer.save_freq, self.progress.step
        return step > 0 and (self.progress.best_step == step or (every > 0 and step % every == 0))

    def validate(self) -> Metrics:
        """Score the held-out prompts; remember first, last and best value."""
        with stage("validation"):
            found = validate(
                self.config,
                self.val_prompts,
                rollout=self.parts.rollout,
                rewards=self.parts.rewards,
                version=self.version,
                samples_path=self.samples.of_validation(self.progress.step),
            )
            self.samples.validated(self.progress.step)
        metric = self.config.val_metric
        if metric not in found:
            raise FeedbackError(
                f"trainer.best_metric is {metric!r}, but validation gives {sorted(found)}. Choose one of these."
            )
        value = self.progress.last_val = found[metric]
        self.progress.last_val_step = self.progress.step
        if self.progress.step == 0:
            self.progress.initial_val = value
        elif value > self.progress.best:
            self.progress.best, self.progress.best_step = value, self.progress.step
        seconds = LEDGER.take()
        return {**found, "time/validation_s": seconds["validation"] + seconds.get("reward_model", 0.0)}

    def save(self) -> None:
        """Begin a checkpoint of the last finished step."""
        with stage("checkpoint"):
            self.parts.rewards.settle()  # the steps that a checkpoint has do not come again to write their samples
            state = {
                "job": "train",
                **asdict(self.progress),
                "steering": vars(self.steering),
                "weight_version": self.version,
                "loader": self.loader_state,
            }
            is_best = self.progress.best_step == self.progress.step
            self.saves.save(state, is_best=is_best)

    def save_unless_saved(self) -> None:
        if self.progress.step != self.saves.step:
            self.save()

    def resume(self) -> None:
        """Continue from the checkpoint that ``trainer.resume`` names, if there is one."""
        path = self.checkpoints.find(self.config.trainer.resume)
        if path is None:
            self.truncate_after(-1)  # steps of an earlier start that left no checkpoint come again
            return
        state = load_state(path)
        del state["job"]
        self.steering = Steering(**state.pop("steering"))
        self.loader_state = state.pop("loader")
        self.loader.load_state_dict(self.loader_state)
        self.parts.actor.load(str((path / "actor").absolute()), state.pop("weight_version"))
        if self.parts.critic is not None:
            self.parts.critic.load(str((path / "critic").absolute()))
        self.progress = Progress.read(state)
        if self.checkpoints.holds(path):
            self.saves.step = self.progress.step
            if "jsonl" in self.config.trainer.loggers:
                self.folder.warn_of_lost_metrics(self.progress.step)
            self.checkpoints.mark_best(self.progress.best_step)
        self.truncate_after(self.progress.step)
        self.collapse.restore(read_metrics(self.folder.metrics))
        log.info("continuing from %s", path)

    def truncate_after(self, step: int) -> None:
        """Forget what was written down of steps beyond this one: they come again."""
        self.trackers.truncate_after(step)
        self.books.truncate_after(step)
        self.capsules.continue_after(step)
