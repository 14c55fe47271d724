"""Runs that learn from a teacher: alone, with rewards, continued, and refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests._tiers import slow_but
from tests.e2e._kept_workers import KeptWorkers
from tests.e2e.conftest import Run, arguments, train
from verl_like.cli import main
from verl_like.runs.snapshot_files import recorded_rows, snapshot_of

pytestmark = pytest.mark.usefixtures("ray_cluster")
# One update a step, so that the old policy of pg is that of the update.
COMMON = ("rollout=hf", "algorithm=distill", "actor.optim.lr=3e-3", "trainer.save_freq=2")
LEFT = {"pg": 0.95, "jsd": 0.7}  # share of the first distance that is left at most; samples are noisier
KINDS = {"pg": ("algorithm.distill_loss=pg",), "jsd": ("algorithm.distill_loss=jsd", "algorithm.distill_beta=0.5")}


def check_continued(whole: Run, data: Path, out: Path, options: tuple[str, ...], ray_cluster: KeptWorkers) -> None:
    """Train two steps, continue in other processes, and compare with the whole run bit for bit."""
    train(data, out, *options, "trainer.total_training_steps=2")
    ray_cluster.end()  # a run is continued by processes that remember nothing
    resumed = train(data, out, *options, f"trainer.total_training_steps={len(whole.metrics)}")
    for step, metrics in whole.metrics.items():
        numbers = {name: value for name, value in metrics.items() if name.startswith("actor/")}
        assert {name: resumed.metrics[step][name] for name in numbers} == numbers, f"step {step}"


@pytest.mark.parametrize("kind", slow_but((), ((kind, (kind,)) for kind in KINDS), nightly={"pg"}))
def test_a_run_comes_closer_to_its_teacher_and_continues_bit_for_bit(
    kind: str, arithmetic: Path, teacher: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    options = (*COMMON, *KINDS[kind], f"ref.path={teacher}")
    whole = train(arithmetic, tmp_path / "whole", *options, "trainer.total_training_steps=8")
    distances = [metrics["actor/distill_loss"] for metrics in whole.metrics.values()]
    assert distances[0] > 0.01 and distances[-1] < LEFT[kind] * distances[0]
    has_stage = ["time/ref_log_probs_s" in metrics for metrics in whole.metrics.values()]
    assert has_stage == [kind == "pg"] * 8
    check_continued(whole, arithmetic, tmp_path / "parts", options, ray_cluster)


@pytest.mark.slow
def test_a_teacher_and_rewards_train_adapters(arithmetic: Path, teacher: Path, tmp_path: Path) -> None:
    options = ("rollout=hf", "algorithm.distill_coef=0.5", "model.lora.rank=4", f"ref.path={teacher}", *KINDS["jsd"])
    run = train(arithmetic, tmp_path, *options)
    for metrics in run.metrics.values():
        assert metrics["actor/distill_loss"] > 0 and metrics["actor/grad_norm"] > 0
        assert metrics["advantages/std"] > 0


@pytest.fixture(scope="module")
def hints(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of which two in three have their answer as the privileged context."""
    file = tmp_path_factory.mktemp("hints") / "train.parquet"
    rows = pq.read_table(arithmetic / "train.parquet")
    contexts = [answer if row % 3 else None for row, answer in enumerate(rows["answer"].to_pylist())]
    pq.write_table(rows.append_column("privileged_context", pa.array(contexts)), file)
    return file


PRIVILEGED = ("data.teacher_prompt='{{ privileged_context }}{{ content }}'", "data.max_privileged_context_length=4")


VERSIONS = {f"{teacher}-{kind}": (teacher, kind) for teacher, kind in (("base", "pg"), ("ema", "pg"), ("self", "jsd"))}


@pytest.mark.parametrize(("teacher", "kind"), slow_but((), VERSIONS.items(), nightly={*VERSIONS} - {"ema-pg"}))
def test_a_run_learns_from_a_version_of_its_policy_and_continues_bit_for_bit(
    teacher: str, kind: str, arithmetic: Path, hints: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    options = (*COMMON, *PRIVILEGED, f"data.train_files=[{hints}]", f"algorithm.distill_teacher={teacher}")
    options = (*options, *KINDS[kind], *["algorithm.distill_ema=0.25"] * (teacher == "ema"))
    whole = train(arithmetic, tmp_path / "whole", *options, "trainer.total_training_steps=4")
    for metrics in whole.metrics.values():
        assert metrics["actor/grad_norm"] > 0, "the context makes the teacher another one"
        assert ("time/ref_log_probs_s" in metrics) == (kind == "pg")
        assert ("time/ref_reset_s" in metrics) == (teacher == "ema")
    folder = tmp_path / "whole" / whole.folder.name / "checkpoints" / "step_2"
    assert (folder / "ref").is_dir() == (teacher == "ema")
    check_continued(whole, arithmetic, tmp_path / "parts", options, ray_cluster)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_with_adapters_learns_from_itself_without_them(
    kind: str, arithmetic: Path, hints: Path, tmp_path: Path
) -> None:
    options = (*COMMON, *PRIVILEGED, f"data.train_files=[{hints}]", "algorithm.distill_teacher=base", *KINDS[kind])
    run = train(arithmetic, tmp_path, *options, "model.lora.rank=4")
    for metrics in run.metrics.values():
        assert metrics["actor/grad_norm"] > 0


def test_without_contexts_no_worker_starts(
    arithmetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("algorithm=distill", "algorithm.distill_teacher=self", "data.max_privileged_context_length=4")
    assert main(["train", *arguments(arithmetic, tmp_path, *options, "--dry-run")]) == 2
    assert "rows has a text in 'privileged_context', so the teacher would see what" in capsys.readouterr().err


def by_parity(data: Path, out: Path, names: tuple[str, str] = ("even", "odd")) -> Path:
    """Write the training rows with a teacher each, by the parity of their first digit."""
    rows = pq.read_table(data / "train.parquet")
    teachers = [names[int(prompt[0]) % 2] for prompt in rows["prompt"].to_pylist()]
    pq.write_table(rows.append_column("teacher", pa.array(teachers)), out / "rows.parquet")
    return out / "rows.parquet"


def log_probs(model: Path, prompt: list[int], response: list[int]) -> np.ndarray:
    """Return the log-probs of a response's tokens by a plain model."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(model)(torch.tensor([prompt + response])).logits[0]
    found = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return found.gather(-1, torch.tensor(response)[:, None])[:, 0].numpy()


SEVERAL = {"pg in own workers": (*KINDS["pg"], "cluster.placement={trainer: 1, ref: 1}"), "jsd": KINDS["jsd"]}


@pytest.mark.parametrize("kind", slow_but((), ((kind, (kind,)) for kind in SEVERAL), nightly={"pg in own workers"}))
def test_each_row_learns_from_the_teacher_that_it_names(
    kind: str, arithmetic: Path, teacher: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    """One of the teachers is the initial policy; a run that was interrupted continues bit for bit."""
    models = {"even": teacher, "odd": arithmetic / "model"}
    several = f"ref.teachers={{{', '.join(f'{name}: {path}' for name, path in models.items())}}}"
    files = f"data.train_files=[{by_parity(arithmetic, tmp_path)}]"
    options = (*COMMON, *SEVERAL[kind], files, several, "trainer.num_capsules=4")
    whole = train(arithmetic, tmp_path / "whole", *options, "trainer.total_training_steps=4")
    first = whole.metrics[1]
    fractions = [first[f"actor/distill_tokens_frac/{name}"] for name in models]
    assert min(fractions) > 0 and sum(fractions) == pytest.approx(1)
    assert first["actor/distill_loss/even"] > 0.01
    assert first["actor/distill_loss/odd"] == pytest.approx(0, abs=1e-4), "the policy is still its own teacher"
    if kind != "jsd":  # which has no column of log-probs
        check_log_probs(whole.folder, models, arithmetic / "model")
    check_continued(whole, arithmetic, tmp_path / "parts", options, ray_cluster)


def check_log_probs(run: Path, models: dict[str, Path], tokenizer: Path) -> None:
    """Compare the first step's log-probs of each row with those of its teacher as a plain model."""
    from transformers import AutoTokenizer

    texts, seen = AutoTokenizer.from_pretrained(tokenizer), set()
    snapshot = snapshot_of(run / "capsules", 1)
    assert snapshot is not None
    for _, columns in recorded_rows(snapshot):
        rows = [columns[name] for name in ("prompt_ids", "response_ids", "ref_log_probs")]
        for prompt, response, found in zip(*rows, strict=True):
            name = ("even", "odd")[int(texts.decode(prompt.tolist())[0]) % 2]
            expected = log_probs(models[name], prompt.tolist(), response.tolist())
            np.testing.assert_allclose(found, expected, atol=1e-4)
            seen.add(name)
    assert seen == set(models)


def test_a_row_without_a_teacher_is_named_before_a_worker_starts(
    arithmetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of validation have no such column."""
    files = f"data.train_files=[{by_parity(arithmetic, tmp_path, ('even', 'uneven'))}]"
    several = f"ref.teachers={{even: {arithmetic}/model, odd: {arithmetic}/model}}"
    assert main(["train", *arguments(arithmetic, tmp_path, "algorithm=distill", files, several, "--dry-run")]) == 2
    found = capsys.readouterr().err
    assert "has 'uneven' in the column teacher (data.teacher_key), but ref.teachers has even, odd" in found
    files = f"data.train_files=[{by_parity(arithmetic, tmp_path)}]"
    assert main(["train", *arguments(arithmetic, tmp_path, "algorithm=distill", files, several, "--dry-run")]) == 0


def test_without_a_teacher_no_worker_starts(
    arithmetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments(arithmetic, tmp_path, "algorithm=distill", "--dry-run")]) == 2
    assert "ref.path and ref.teachers are empty, so there is no teacher" in capsys.readouterr().err
