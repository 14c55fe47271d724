"""Episodes that show pictures between turns, on the real stack: small models of each family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipes.colours.model import write_model
from recipes.colours.prepare import write_all
from tests._tiers import slow_but
from tests.e2e._kept_workers import KeptWorkers
from tests.e2e._uninterrupted import differences
from tests.e2e.conftest import Run
from tests.e2e.test_forks import rows_of
from tests.e2e.test_pictures import ALONE, FAMILY, OF_ONE_FAMILY, RECIPE, colours, trained
from tests.families.pictures import PICTURE_FAMILIES
from verl_like.backends.pictures import PictureReader
from verl_like.config.compose import compose
from verl_like.config.schema import ModelConfig
from verl_like.training import jobs

__all__ = ["colours"]  # a fixture

pytestmark = pytest.mark.usefixtures("ray_cluster")

GALLERY = """
from io import BytesIO
from PIL import Image

SHADES = [(220, 40, 40), (40, 180, 60), (40, 70, 220)]


class Gallery:
    def reset(self, **row):
        self.turns = 0

    def step(self, text):
        self.turns += 1
        picture = Image.new("RGB", (56, 56), SHADES[len(text) % 3])
        if self.turns == 1:
            return picture, 0.0, False
        parts = [{"type": "image", "image": picture}, "Which colour ?", {"type": "image", "image": picture.rotate(90)}]
        return parts, sum(map(ord, text)) % 7 / 7, self.turns == 3
"""


@pytest.fixture(scope="module", params=slow_but({FAMILY}, [(name, (name,)) for name in PICTURE_FAMILIES]))
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def played(family: str, colours: Path, out: Path, *overrides: str) -> Run:
    (colours / "gallery.py").write_text(GALLERY)
    return trained(
        family,
        colours,
        out,
        "reward.function=''",
        "data.max_prompt_length=48",
        "data.max_response_length=100",
        f"environment.path={colours}/gallery.py:Gallery",
        "environment.max_turns=3",
        "environment.max_turn_tokens=3",
        *overrides,
    )


@pytest.fixture(scope="module")
def run(family: str, colours: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run")
    return played(family, colours, out, "trainer.total_training_steps=2", "trainer.save_freq=1")


def samples(run: Run, step: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / f"samples/step_{step}.jsonl").read_text().splitlines() if line]


def test_a_family_learns_from_pictures_between_turns(run: Run) -> None:
    assert sorted(run.metrics) == [1, 2]
    for metrics in run.metrics.values():
        assert metrics["reward/num_failed"] == 0
        assert metrics["rollout/log_prob_diff_max"] < 1e-4
        assert metrics["actor/grad_norm"] > 0


def test_samples_show_the_pictures_that_rows_have_without_their_content(run: Run) -> None:
    for line in samples(run, 1):
        chat = [*line["episode"]["prompt"], *line["episode"]["completion"]]
        parts = [part for message in chat[len(line["episode"]["prompt"]) :] for part in _parts(message)]
        shown = [part for part in parts if part["type"] == "image"]
        assert len(shown) == 3 and {(part["height"], part["width"]) for part in shown} == {(56, 56)}
        assert set(shown[0]) == {"type", "height", "width", "digest"}
        assert [message["role"] for message in chat[-5:]] == ["assistant", "user", "assistant", "user", "assistant"]
        assert line["num_turns"] == 3 and line["environment_status"] == "ok"
    assert "base64" not in (run.folder / "samples/step_1.jsonl").read_text()


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else []


def test_rows_have_the_tokens_of_the_pictures_that_were_shown(run: Run, family: str, colours: Path) -> None:
    columns = rows_of(run, 1)
    reader = PictureReader(str(colours / family), model=ModelConfig())
    each = reader.count(56, 56)
    assert len(columns["response_ids"]) == 32
    for ids, mask in zip(columns["response_ids"], columns["response_mask"], strict=True):
        is_picture = ids == reader.token_id
        starts = np.flatnonzero(np.diff(is_picture.astype(int), prepend=0) == 1)
        ends = np.flatnonzero(np.diff(is_picture.astype(int), append=0) == -1)
        assert (ends - starts + 1).tolist() == [each] * 3 and not mask[is_picture].any()
        assert 3 <= mask.sum() <= 9 and mask[0] and mask[-1]


WAYS = {
    "padded": ("model.remove_padding=false",),
    "whole-prompts": ("model.share_prompts=false",),
    "one-worker": (ALONE,),
    "micro-batches": ("actor.max_tokens_per_micro_batch=150",),
}


@OF_ONE_FAMILY
@pytest.mark.parametrize(
    "overrides", slow_but((), ((name, (words,)) for name, words in WAYS.items()), nightly={"padded", "one-worker"})
)
def test_how_a_step_is_computed_does_not_change_its_numbers(
    run: Run, family: str, colours: Path, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    other = played(family, colours, tmp_path, "trainer.total_training_steps=1", *overrides)
    names = ("actor/loss", "actor/grad_norm", "actor/kl_loss", "reward/score_mean", "rollout/response_tokens_mean")
    found, expected = ({name: each.metrics[1][name] for name in names} for each in (other, run))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert other.metrics[1]["rollout/log_prob_diff_max"] < 1e-4


@pytest.mark.nightly
@OF_ONE_FAMILY
def test_a_run_with_shown_pictures_continues_bit_for_bit(
    run: Run, family: str, colours: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    played(family, colours, tmp_path, "trainer.total_training_steps=1", "trainer.save_freq=1")
    ray_cluster.end()  # a run is continued by processes that remember nothing
    resumed = played(family, colours, tmp_path, "trainer.total_training_steps=2", "trainer.save_freq=1")
    assert not differences(resumed.folder, run.folder)


AGENT = """
import base64, io, json, urllib.request
from PIL import Image

def part(shade):
    file = io.BytesIO()
    Image.new("RGB", (56, 56), shade).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}

def run(base_url, prompt, request_kwargs, metadata):
    messages = list(prompt)
    for shade in ((220, 40, 40), (40, 70, 220)):
        body = json.dumps({"model": "policy", "messages": messages, **request_kwargs}).encode()
        headers = {"Authorization": "Bearer " + metadata["api_key"], "Content-Type": "application/json"}
        request = urllib.request.Request(base_url + "/v1/chat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            message = json.load(answer)["choices"][0]["message"]
        messages += [message, {"role": "user", "content": [part(shade), {"type": "text", "text": "Which colour ?"}]}]
    return sum(map(ord, message["content"] or "")) % 7 / 7
"""


@OF_ONE_FAMILY
def test_an_agent_program_shows_pictures(family: str, colours: Path, tmp_path: Path) -> None:
    (colours / "agent.py").write_text(AGENT)
    program = f"environment.path={colours}/agent.py:run"
    found = played(family, colours, tmp_path, program, "trainer.total_training_steps=1")
    assert found.metrics[1]["reward/num_failed"] == 0
    assert found.metrics[1]["rollout/log_prob_diff_max"] < 1e-4
    assert {line["num_turns"] for line in samples(found, 1)} == {2}


HOSTILE = """
class Hostile:
    def reset(self, prompt, seed, **row):
        if seed > 1000 and seed % 2:  # not in the trial before the run
            return [{"role": "user", "content": [{"type": "image", "image": "/etc/passwd"}]}]
        return None

    def step(self, text):
        number = sum(map(ord, text))
        if number % 2 or not text:
            return "", number % 7 / 7, True
        bad = ["/etc/passwd", "http://127.0.0.1/a.png", "data:image/png;base64,AAAA", b"text"]
        return [{"type": "image", "image": bad[number // 2 % 4]}], 0.0, False
"""


@pytest.mark.slow
def test_hostile_pictures_end_their_episodes_and_not_the_run(family: str, colours: Path, tmp_path: Path) -> None:
    (colours / "hostile.py").write_text(HOSTILE)
    hostile = f"environment.path={colours}/hostile.py:Hostile"
    found = played(family, colours, tmp_path, hostile, "trainer.total_training_steps=1", "reward.max_failure_frac=1")
    statuses = [line["environment_status"] for line in samples(found, 1)]
    assert 0 < statuses.count("ok") == 32 - found.metrics[1]["reward/num_failed"] < 32
    assert set(statuses) == {"ok", "junk"}
    assert found.metrics[1]["rollout/log_prob_diff_max"] < 1e-4 and found.metrics[1]["actor/grad_norm"] > 0


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_the_gallery_learns_colours(tmp_path: Path) -> None:
    write_all(tmp_path / "data", 0)
    write_model(tmp_path / "init", 0)
    composed = compose(
        str(RECIPE / "gallery.yaml"),
        [
            f"data.train_files=[{tmp_path}/data/train.parquet]",
            f"data.val_files=[{tmp_path}/data/val.parquet]",
            f"model.path={tmp_path}/init",
            f"environment.path={RECIPE}/gallery.py:Gallery",
            f"trainer.output_dir={tmp_path}",
            "trainer.experiment_name=gallery",
        ],
    )
    progress = jobs.train(composed.config, composed.yaml())
    found = Run(tmp_path / "gallery", progress)
    assert found.metrics[0]["val/mean@1"] < 0.4
    assert progress.last_val is not None and progress.last_val >= 0.9
