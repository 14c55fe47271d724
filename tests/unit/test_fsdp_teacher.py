"""A policy that learns from a teacher's whole distributions: as a plain model would, on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.unit._fsdp_ranks import build_engine, tiny_model
from tests.unit._fsdp_teacher_ranks import (
    BETA,
    COEF,
    log_probs_by_teacher,
    privileged_rows,
    rows,
    two_updates,
    two_updates_by_teacher,
)
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from verl_like.algorithms.distillation import Distillation
from verl_like.algorithms.types import BatchTotals, LossInputs
from verl_like.config.schema import AlgorithmConfig, Config, LoraConfig
from verl_like.protocol import DataProto
from verl_like.workers.ref import RefRole
from verl_like.workers.setup import WorkerSetup

TEMPERATURE = 0.8  # of the engines in _fsdp_ranks.py


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folders of a student and of a larger teacher of another family, with more embeddings."""
    folder = tmp_path_factory.mktemp("teacher")
    tiny_model("qwen2", tied=True).save_pretrained(folder / "student")
    tiny_model("llama", hidden_size=64, vocab_size=72).save_pretrained(folder / "teacher")
    return folder / "student", folder / "teacher"


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


def distributions(model: PreTrainedModel, size: int, *, prompts: str = "prompt_ids") -> Tensor:
    """Return [K, size] log-probs at the response tokens, one row at a time through the plain model.

    Args:
        prompts: column with the prompts that the model sees.
    """
    table, found = privileged_rows(), []
    for prompt, response in zip(table.ragged(prompts), table.ragged("response_ids"), strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))
        found.append(model(ids[None]).logits[0, len(prompt) - 1 : -1, :size])
    return (torch.cat(found) / TEMPERATURE).log_softmax(-1)


def check_first_update(metrics: dict[str, float], student: Path, t: Tensor) -> None:
    """Compare an update with plain models, of which the teachers have the log-probs ``t`` [K, 64].

    The loss also has a REINFORCE term.
    """
    model = AutoModelForCausalLM.from_pretrained(student)
    s = distributions(model, 64)
    mixed = ((1 - BETA) * s.exp() + BETA * t.exp()).log()
    divergence = BETA * (t.exp() * (t - mixed)).sum(-1) + (1 - BETA) * (s.exp() * (s - mixed)).sum(-1)
    table = rows()
    mask = torch.from_numpy(table.ragged("response_mask").values)
    advantages = torch.from_numpy(table.ragged("advantages").values)
    chosen = s.gather(-1, torch.from_numpy(table.ragged("response_ids").values.astype(np.int64))[:, None])[:, 0]
    loss = ((COEF * divergence - advantages * chosen) * mask).sum() / mask.sum()
    torch.autograd.backward(loss)
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert metrics["actor/loss"] == pytest.approx(float(loss.detach()), rel=1e-5, abs=5e-7)  # its terms cancel
    assert metrics["actor/distill_loss"] == pytest.approx(float(divergence.detach()[mask].mean()), rel=1e-5)


def frozen(path: Path, prompts: str = "prompt_ids") -> Tensor:
    with torch.no_grad():
        return distributions(AutoModelForCausalLM.from_pretrained(path), 64, prompts=prompts)


@pytest.mark.parametrize("teacher", ["frozen", "privileged", "itself"])
def test_the_first_update_has_the_gradient_of_plain_models(models: tuple[Path, Path], teacher: str) -> None:
    is_itself, is_privileged = teacher == "itself", teacher != "frozen"
    t = frozen(models[not is_itself], "teacher_prompt_ids" if is_privileged else "prompt_ids")
    found = two_updates(*models, is_privileged=is_privileged, is_itself=is_itself)
    check_first_update(found["metrics"][0], models[0], t)


class LocalRows:
    """Rows of a batch that need no store."""

    def __init__(self, table: DataProto) -> None:
        self._table, self.columns = table, frozenset(table.columns)

    def fetch(self, columns: Sequence[str], *, timeout_s: float) -> DataProto:
        return DataProto({name: self._table[name] for name in columns})


@pytest.mark.parametrize("teacher", ["self", "base"])
def test_advantages_come_from_the_log_probs_after_the_teachers_prompts(models: tuple[Path, Path], teacher: str) -> None:
    """A teacher that sees the context: c (log T - log S) of plain models in float64, at the rollout's temperature."""
    config = Config(algorithm=AlgorithmConfig(distill_coef=COEF, distill_teacher=teacher))
    config.rollout.temperature = TEMPERATURE
    roles = frozenset({"actor", "ref"})
    setup = WorkerSetup(config=config, rank=0, world_size=1, device="cpu", run_id="test", roles=roles)
    role = RefRole(setup, build_engine(models[0]), is_actor=teacher == "self")
    table = privileged_rows()
    _, found = role.ref_log_probs(LocalRows(table))  # type: ignore[arg-type]
    chosen = torch.from_numpy(table.ragged("response_ids").values.astype(np.int64))[:, None]
    student = AutoModelForCausalLM.from_pretrained(models[0], dtype=torch.float64)
    with torch.no_grad():
        s, t = (
            distributions(student, 64, prompts=prompts).gather(-1, chosen)[:, 0]
            for prompts in ("prompt_ids", "teacher_prompt_ids")
        )
    inputs = LossInputs(
        log_probs=s[None],
        old_log_probs=s[None],
        ref_log_probs=torch.from_numpy(found.ragged("ref_log_probs").values)[None].double(),
        advantages=torch.zeros(1, len(s), dtype=torch.float64),
        response_mask=torch.ones(1, len(s), dtype=torch.bool),
        totals=BatchTotals(num_tokens=len(s), num_sequences=1, max_response_tokens=len(s)),
    )
    taught, _, metrics = Distillation(COEF, "pg").applied(inputs, {}, "token-mean")
    torch.testing.assert_close(taught.advantages[0], COEF * (t - s), atol=1e-5, rtol=1e-5)
    assert float(metrics["distill_loss"]) == pytest.approx(float((s - t).mean()), abs=1e-5)
    assert float((t - s).abs().max()) > 0.01, "the context matters"


def test_a_policy_that_sees_what_its_teacher_sees_does_not_differ_from_it(models: tuple[Path, Path]) -> None:
    """A teacher that is the policy, or the policy without adapters, which do nothing at first."""
    lora = {"lora": LoraConfig(rank=4)}
    for settings in ({}, {"model": lora}):
        first, second = two_updates(*models, is_itself=True, **settings)["metrics"]
        assert first["actor/distill_loss"] == pytest.approx(0.0, abs=1e-7)
        assert (second["actor/distill_loss"] > 1e-6) == bool(settings)


@pytest.mark.parametrize("remove_padding", [True, False])
@pytest.mark.parametrize("is_itself", [True, False])
def test_micro_batches_and_padding_do_not_change_a_privileged_teacher(
    models: tuple[Path, Path], is_itself: bool, remove_padding: bool
) -> None:
    whole = two_updates(*models, is_privileged=True, is_itself=is_itself)
    settings = {"max_tokens": 25, "model": {"remove_padding": remove_padding}}
    small = two_updates(*models, is_privileged=True, is_itself=is_itself, **settings)
    for one, other in zip(whole["metrics"], small["metrics"], strict=True):
        assert one == pytest.approx(other, abs=1e-6, rel=1e-4)


def test_micro_batches_do_not_change_updates(models: tuple[Path, Path]) -> None:
    whole, small = two_updates(*models), two_updates(*models, max_tokens=25)
    for one, other in zip(whole["metrics"], small["metrics"], strict=True):
        assert one == pytest.approx(other, abs=1e-6, rel=1e-5)
    for name, weight in whole["weights"].items():
        torch.testing.assert_close(weight, small["weights"][name], atol=1e-6, rtol=0)


@pytest.mark.processes
@pytest.mark.parametrize("split", ["even", pytest.param("uneven", marks=pytest.mark.slow), "all_on_first"])
def test_rank_count_does_not_change_updates(models: tuple[Path, Path], split: str) -> None:
    """Both models are sharded; with one of two ranks without rows, too."""
    alone = two_updates(*models)
    for rank in on_ranks(_on_rank, *models, split, world_size=2):
        assert rank["is_sharded"]
        for one, other in zip(rank["metrics"], alone["metrics"], strict=True):
            assert one == pytest.approx(other, abs=1e-5, rel=1e-4)
        for name, weight in alone["weights"].items():
            torch.testing.assert_close(rank["weights"][name], weight, atol=1e-5, rtol=0)


def _on_rank(student: Path, teacher: Path, split: str, is_itself: bool = False) -> dict[str, object]:
    return two_updates(student, teacher, split=split, max_tokens=40, is_privileged=is_itself, is_itself=is_itself)


@pytest.mark.processes
def test_rank_count_does_not_change_a_policy_that_is_its_own_teacher(models: tuple[Path, Path]) -> None:
    """The model's shards are gathered for both passes; one of two ranks has no rows."""
    alone = two_updates(*models, is_privileged=True, is_itself=True)
    for rank in on_ranks(_on_rank, *models, "all_on_first", True, world_size=2):
        assert rank["is_sharded"]
        for one, other in zip(rank["metrics"], alone["metrics"], strict=True):
            assert one == pytest.approx(other, abs=1e-5, rel=1e-4)
        for name, weight in alone["weights"].items():
            torch.testing.assert_close(rank["weights"][name], weight, atol=1e-5, rtol=0)


def test_without_a_teacher_updates_have_no_divergence(models: tuple[Path, Path]) -> None:
    engine = build_engine(models[0])
    batch = next(engine.plan(rows()).passes())
    assert "divergence" not in engine.outputs(batch, entropy=False)


TEACHERS = {
    "one on each rank": [row % 2 for row in range(12)],
    "few rows of the second": [int(row == 5) for row in range(12)],
}


@pytest.mark.parametrize("max_tokens", [10_000, 25])
def test_an_update_compares_each_row_with_its_teacher(models: tuple[Path, Path], max_tokens: int) -> None:
    """One of the two teachers is the initial policy."""
    teachers = TEACHERS["one on each rank"]
    of_tokens = np.repeat(teachers, rows().ragged("response_ids").lengths)
    t = torch.where(torch.from_numpy(of_tokens)[:, None] == 0, frozen(models[0]), frozen(models[1]))
    found = two_updates_by_teacher(models[0], list(models), teachers, max_tokens=max_tokens)
    check_first_update(found["metrics"][0], models[0], t)


@pytest.mark.processes
@pytest.mark.parametrize("split", ["even", "all_on_first"])
def test_rank_count_does_not_change_updates_with_several_teachers(models: tuple[Path, Path], split: str) -> None:
    """With ``even`` all rows of a teacher are on one rank."""
    teachers = TEACHERS["one on each rank"]
    alone = two_updates_by_teacher(models[0], list(models), teachers)
    for rank in on_ranks(_by_teacher, *models, teachers, split, world_size=2):
        for one, other in zip(rank["metrics"], alone["metrics"], strict=True):
            assert one == pytest.approx(other, abs=1e-5, rel=1e-4)
        for name, weight in alone["weights"].items():
            torch.testing.assert_close(rank["weights"][name], weight, atol=1e-5, rtol=0)


def _by_teacher(student: Path, teacher: Path, teachers: list[int], split: str) -> dict[str, object]:
    return two_updates_by_teacher(student, [student, teacher], teachers, split=split, max_tokens=40)


def by_plain_models(models: tuple[Path, Path], teachers: list[int]) -> list[Tensor]:
    """Return each row's log-probs of its response tokens by the plain model that it names."""
    table = rows()
    responses = table.ragged("response_ids")
    chosen = torch.from_numpy(responses.values.astype(np.int64))[:, None]
    by_model = []
    for path in models:
        model = AutoModelForCausalLM.from_pretrained(path)
        with torch.no_grad():
            found = distributions(model, model.config.vocab_size).gather(-1, chosen)[:, 0]
        by_model.append(found.split(responses.lengths.tolist()))
    return [by_model[teacher][row] for row, teacher in enumerate(teachers)]


def check_log_probs(ranks: list[dict[str, object]], models: tuple[Path, Path], teachers: list[int]) -> None:
    """Check that every row has its teacher's log-probs, and that no model has run another's rows."""
    found: dict[int, object] = {}
    for rank in ranks:
        assert isinstance(rank["log_probs"], dict)
        found |= rank["log_probs"]
    for row, expected in enumerate(by_plain_models(models, teachers)):
        np.testing.assert_allclose(found[row], expected.numpy(), atol=2e-5, rtol=0)
    num_run = np.sum([rank["num_run"] for rank in ranks], axis=0)
    assert num_run.tolist() == np.bincount(teachers, minlength=2).tolist()


@pytest.mark.parametrize("teachers", TEACHERS.values(), ids=TEACHERS)
def test_each_row_has_the_log_probs_of_its_teacher(models: tuple[Path, Path], teachers: list[int]) -> None:
    check_log_probs([log_probs_by_teacher(list(models), teachers)], models, teachers)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("teachers", "split"), [(TEACHERS["one on each rank"], "even"), (TEACHERS["few rows of the second"], "uneven")]
)
def test_ranks_without_rows_of_a_sharded_teacher_help_the_others(
    models: tuple[Path, Path], teachers: list[int], split: str
) -> None:
    ranks = on_ranks(log_probs_by_teacher, list(models), teachers, split, world_size=2)
    assert all(rank["sharded"] == [True, True] for rank in ranks)
    assert any(0 in rank["num_run"] for rank in ranks), "no rank lacks rows of a teacher"
    check_log_probs(ranks, models, teachers)
