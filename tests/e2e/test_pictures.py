"""Policies that read pictures on the real stack: small models of each family, with prompts in every form."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from recipes.colours.gallery import SHADES, picture
from recipes.colours.model import write_model
from recipes.colours.prepare import rows, write_all
from tests._tiers import slow_but
from tests.e2e._kept_workers import KeptWorkers
from tests.e2e._uninterrupted import differences
from tests.e2e.conftest import Run, train
from tests.families.pictures import PICTURE_FAMILIES
from verl_like.backends.pictures import is_of_vision
from verl_like.config.compose import compose
from verl_like.imports import importing
from verl_like.report.command import as_json
from verl_like.training import jobs

with importing():
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

pytestmark = pytest.mark.usefixtures("ray_cluster")

FAMILY = "Qwen2.5-VL"  # of the tests that are about one
OF_ONE_FAMILY = pytest.mark.parametrize("family", [FAMILY], indirect=True)
NAMED = [(name, (name,)) for name in PICTURE_FAMILIES]
OTHERS_AT_NIGHT = pytest.mark.parametrize(
    "family", slow_but({FAMILY}, NAMED, nightly={*PICTURE_FAMILIES} - {FAMILY}), indirect=True
)
RECIPE = Path(__file__).parents[2] / "recipes/colours"
REWARD = """
def varied(data_source, solution_str, ground_truth, extra_info):
    return sum(map(ord, solution_str)) % 7 / 7
"""
ALONE = "cluster.workers_per_node=1"


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows of all forms, a reward, and a model of each family."""
    folder = tmp_path_factory.mktemp("colours")
    pq.write_table(pa.table(rows(8, 0)), folder / "train.parquet")
    pq.write_table(pa.table(rows(4, 1)), folder / "val.parquet")
    (folder / "pictures").mkdir()
    numbers = np.random.default_rng(2)
    for colour in SHADES:
        (folder / f"pictures/{colour}.png").write_bytes(picture(colour, numbers))
    lines = [json.dumps({**row, "data_source": "colours"}) for row in other_rows(picture("red", numbers))]
    (folder / "other.jsonl").write_text("\n".join(lines))
    (folder / "reward.py").write_text(REWARD)
    for name, family in PICTURE_FAMILIES.items():
        family.write(folder / name)
    return folder


def other_rows(red: bytes) -> list[dict[str, Any]]:
    """Return rows without a picture and with two, as strings, chats and parts, of paths and a URL of data."""
    question = {"type": "text", "text": "Which colour is this ?"}
    url = f"data:image/png;base64,{b64encode(red).decode()}"
    two = [{"type": "image"}, question, {"type": "image"}]
    named = [{"type": "image", "image": "pictures/blue.png"}, question]
    pasted = [question, {"type": "image_url", "image_url": {"url": url}}]
    return [
        {"prompt": "Which colour is this ?", "answer": "red"},
        {"prompt": [{"role": "user", "content": "Which colour ?"}], "answer": "green"},
        {"prompt": "Which colour is this ?", "images": ["pictures/blue.png"], "answer": "blue"},
        {"prompt": "Which <image> is this <image> ?", "images": ["pictures/red.png", url], "answer": "red"},
        {"prompt": [{"role": "user", "content": two}], "images": ["pictures/green.png", url], "answer": "red"},
        {"prompt": [{"role": "user", "content": named}], "answer": "blue"},
        {"prompt": [{"role": "user", "content": pasted}], "answer": "red"},
        {"prompt": [{"role": "user", "content": "<image>this ?"}], "image": "pictures/orange.png", "answer": "orange"},
    ]


def trained(name: str, colours: Path, out: Path, *overrides: str) -> Run:
    """Return a run with old log-probs (two updates per step) and a reference (KL in rewards and in the loss)."""
    return train(
        colours,
        out,
        f"model.path={colours}/{name}",
        f"data.train_files=[{colours}/train.parquet,{colours}/other.jsonl]",
        "data.apply_chat_template=true",
        "data.max_prompt_length=48",
        f"reward.function={colours}/reward.py:varied",
        "actor.mini_batch_size=4",
        "actor.kl_loss_coef=0.01",
        "algorithm.kl_coef=0.01",
        "trainer.total_training_steps=3",
        "trainer.num_samples_to_save=-1",
        *overrides,
    )


@pytest.fixture(scope="module", params=slow_but({FAMILY}, NAMED))
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def run(family: str, colours: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: KeptWorkers) -> Run:
    return trained(
        family,
        colours,
        tmp_path_factory.mktemp("run"),
        f"data.val_files=[{colours}/val.parquet]",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
    )


def test_a_family_learns_from_pictures_with_engine_and_trainer_in_agreement(run: Run) -> None:
    assert sorted(run.metrics) == [1, 2, 3]
    for step, metrics in run.metrics.items():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4
        assert metrics["actor/grad_norm"] > 0
        assert (metrics["reward/kl_penalty_mean"] != 0) == (step > 1), "the policy has left the reference"
        assert 0 < metrics["val/mean@1"] < 1


def test_the_export_is_a_model_with_its_processor(run: Run, family: str, colours: Path) -> None:
    exported = run.folder / "model"
    model = AutoModelForImageTextToText.from_pretrained(exported)
    start = AutoModelForImageTextToText.from_pretrained(colours / family)
    assert {name for name, _ in model.named_parameters()} == {name for name, _ in start.named_parameters()}
    assert any(not torch.equal(*pair) for pair in zip(model.parameters(), start.parameters(), strict=True))
    processors = [AutoImageProcessor.from_pretrained(folder) for folder in (exported, colours / family)]
    assert processors[0].to_dict() == processors[1].to_dict()
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which colour ?"}]}]
    text = AutoTokenizer.from_pretrained(exported).apply_chat_template(chat, tokenize=False)
    assert text == "<|vision_start|><|image_pad|><|vision_end|>Which colour ?"
    copied = [file.name for file in (colours / family).glob("*processor_config.json")]
    for name in (*copied, "tokenizer.json", "chat_template.jinja"):
        assert (exported / name).read_bytes() == (colours / family / name).read_bytes(), name
    assert copied


def test_samples_and_report_mark_pictures_without_their_content(run: Run) -> None:
    lines = [json.loads(line) for step in (1, 2, 3) for line in (run.folder / f"samples/step_{step}.jsonl").open()]
    counts = {line["uid"]: line["prompt"].count("<|image_pad|>") for line in lines}
    assert {counts[uid] for uid in counts if uid.startswith("train.parquet")} == {1}
    in_order = [counts[f"other.jsonl:{number}"] for number in range(8) if f"other.jsonl:{number}" in counts]
    assert 0 in in_order and 1 in in_order and 2 in in_order, in_order
    largest = max(path.stat().st_size for path in (run.folder / "samples").glob("*.jsonl"))
    assert largest < 2000 * 32, "bytes per line"
    shards: Any = json.loads(as_json([run.folder]))["shards"]
    assert "<|image_pad|>" in json.dumps(shards)
    for text in (json.dumps(lines), json.dumps(shards)):
        assert "base64,iVBOR" not in text and "PNG" not in text
    assert "base64,iVBOR" not in (run.folder / "report.html").read_text(), "its compressed data may spell PNG"


WAYS: dict[str, tuple[tuple[str, ...], float]] = {
    "padded": (("model.remove_padding=false",), 1e-5),
    "whole-prompts": (("model.share_prompts=false",), 1e-5),
    "one-worker": ((ALONE,), 1e-4),
    "micro-batches": (("actor.max_tokens_per_micro_batch=64",), 1e-4),
}


@OTHERS_AT_NIGHT
@pytest.mark.parametrize(("overrides", "tolerance"), slow_but({"padded"}, WAYS.items(), nightly={"whole-prompts"}))
def test_how_a_step_is_computed_does_not_change_its_numbers(
    run: Run, family: str, colours: Path, tmp_path: Path, overrides: tuple[str, ...], tolerance: float
) -> None:
    other = trained(family, colours, tmp_path, "trainer.total_training_steps=1", *overrides)
    names = ("actor/loss", "actor/grad_norm", "actor/kl_loss", "reward/score_mean", "rollout/response_tokens_mean")
    found, expected = ({name: each.metrics[1][name] for name in names} for each in (other, run))
    assert found == pytest.approx(expected, rel=tolerance, abs=1e-6)
    assert other.metrics[1]["rollout/log_prob_diff_max"] < 1e-4


@pytest.mark.slow
@OTHERS_AT_NIGHT
def test_a_run_continues_bit_for_bit(
    run: Run, family: str, colours: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    options = (f"data.val_files=[{colours}/val.parquet]", "trainer.test_freq=1", "trainer.save_freq=1")
    trained(family, colours, tmp_path, *options, "trainer.total_training_steps=1")
    ray_cluster.end()  # a run is continued by processes that remember nothing
    resumed = trained(family, colours, tmp_path, *options)
    assert not differences(resumed.folder, run.folder)


@OF_ONE_FAMILY
@pytest.mark.parametrize("max_staleness", slow_but((), (("0", (0,)), ("1", (1,))), nightly={"0"}))
def test_an_asynchronous_schedule_trains_with_separate_engines(
    family: str, colours: Path, tmp_path: Path, max_staleness: int
) -> None:
    found = trained(
        family,
        colours,
        tmp_path,
        "cluster.placement={trainer: 1, rollout: 1}",
        "cluster.workers_per_node=0",
        "rollout.sync_checksum=true",
        "trainer.schedule=async",
        f"trainer.max_staleness={max_staleness}",
        "actor.use_rollout_log_probs=true",
        "actor.mini_batch_size=8",  # the log-probs of a second update would be those of other weights
        "algorithm.kl_coef=0",
    )
    assert sorted(found.metrics) == [1, 2, 3]
    for metrics in found.metrics.values():
        assert metrics["actor/grad_norm"] > 0
        assert (metrics["rollout/log_prob_diff_max"] < 1e-4) == (metrics["rollout/staleness_max"] == 0)
    assert {metrics["rollout/staleness_max"] for metrics in found.metrics.values()} == {*range(max_staleness + 1)}


@pytest.mark.slow
@OF_ONE_FAMILY
def test_draws_with_and_without_pictures_make_one_batch(family: str, colours: Path, tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(REWARD.replace("return", "return ground_truth != 'green' and"))
    found = trained(
        family,
        colours,
        tmp_path,
        f"data.train_files=[{colours}/other.jsonl]",
        "data.shuffle=false",
        "data.train_batch_size=2",  # two rows of text, then rows with pictures
        f"reward.function={tmp_path}/reward.py:varied",
        "algorithm.filter_groups=true",
        "actor.mini_batch_size=2",
        "trainer.total_training_steps=1",
    )
    assert found.metrics[1]["rollout/num_batches"] >= 2 and found.metrics[1]["actor/grad_norm"] > 0


@pytest.mark.slow
@OTHERS_AT_NIGHT
def test_frozen_vision_is_exported_as_it_was(family: str, colours: Path, tmp_path: Path) -> None:
    found = trained(family, colours, tmp_path, "model.freeze_vision=true", "trainer.total_training_steps=1")
    before, after = (load_file(folder / "model.safetensors") for folder in (colours / family, found.folder / "model"))
    assert before.keys() == after.keys()
    unchanged = {name for name in before if torch.equal(before[name], after[name])}
    assert unchanged == {name for name in before if is_of_vision(name.removeprefix("model."))}


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_recipe_learns_colours(tmp_path: Path) -> None:
    write_all(tmp_path / "data", 0)
    write_model(tmp_path / "init", 0)
    composed = compose(
        str(RECIPE / "grpo.yaml"),
        [
            f"data.train_files=[{tmp_path}/data/train.parquet]",
            f"data.val_files=[{tmp_path}/data/val.parquet]",
            f"model.path={tmp_path}/init",
            f"trainer.output_dir={tmp_path}",
            "trainer.experiment_name=grpo",
        ],
    )
    progress = jobs.train(composed.config, composed.yaml())
    found = Run(tmp_path / "grpo", progress)
    assert found.metrics[30]["val/mean@4"] < 0.8
    assert progress.last_val is not None and progress.last_val >= 0.9
