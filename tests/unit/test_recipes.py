"""Every recipe: its script, its page, its configuration on the hardware it is meant for, and its data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from array import array
from functools import partial
from pathlib import Path

import pytest

from tests.unit._http_service import HttpService, reply
from tests.unit._published_rows import make_data, save_picture_reader, save_reader
from tests.unit._recipe_table import FILES, FOLDERS, NOT_RUN, RECIPES, ROOT, Listed, named, table, write_shapes
from verl_like.checks.cluster import offloads
from verl_like.checks.rules import contradictions, problems
from verl_like.config.compose import compose
from verl_like.config.schema import Config
from verl_like.data.files import read_rows
from verl_like.data.pairs import scored_pair_rows
from verl_like.data.preferences import preference_rows
from verl_like.data.prompts import Prompt, PromptDataset
from verl_like.data.templates import load_tokenizer
from verl_like.plan.devices import GIB
from verl_like.plan.devices import named as device_named
from verl_like.plan.run_plan import plan_of, shapes_of
from verl_like.plan.stages import Location
from verl_like.plan.step import JOBS, TRAIN, planned_config
from verl_like.reward.functions import Scoring
from verl_like.reward.scorer_messages import RowGroundTruth, Sample
from verl_like.reward.specs import function_specs
from verl_like.training.sft_rows import sft_rows
from verl_like.training.tasks import picture_tokens

TABLE = table()
MAX_LINES = 15  # of a script
JOB_OF = {"kto": "dpo", **{job: job for job in JOBS if job != TRAIN}}  # by the name of the file; others train
SECTIONS = ("Run", "Hardware", "What to expect")
OTHER_PYTHON = ("gem", "verifiers")  # recipes whose interpreter the user makes
WITH_PICTURES = ("geo3k",)  # recipes whose model, published elsewhere, reads pictures
WORDS = ("rollout.n=3", "trainer.experiment_name=a name")  # one with a space, which must stay one word
# Replaces every program that a script starts, and records its arguments.
PROGRAM = """#!/usr/bin/env bash
{ basename "$0"; printf '%s\\n' "$@"; echo; } >> "$CALLS"
"""


def ids(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=named(path)) for path in paths]


def started(script: Path, folder: Path, **environment: str) -> list[list[str]]:
    """Return the programs that a script starts in a checkout without data, word for word."""
    copy, calls = folder / script.relative_to(ROOT), folder / "calls"
    copy.parent.mkdir(parents=True)
    copy.write_text(script.read_text())
    (folder / "bin").mkdir()
    for name in ("python", "verl-like", "sbatch"):
        (folder / "bin" / name).write_text(PROGRAM)
        (folder / "bin" / name).chmod(0o755)
    subprocess.run(
        ["bash", copy, *WORDS],
        env={**os.environ, "VENV": str(folder), "CALLS": str(calls), **environment},
        check=True,
        timeout=60,
    )
    return [call.split("\n") for call in calls.read_text().strip("\n").split("\n\n")]


# --- scripts ---


@pytest.mark.processes
@pytest.mark.parametrize("folder", ids(FOLDERS))
def test_a_script_is_short_and_valid(folder: Path) -> None:
    script = folder / "run.sh"
    assert len(script.read_text().splitlines()) <= MAX_LINES
    assert "set -euo pipefail" in script.read_text() and os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True, timeout=60)


@pytest.mark.processes
@pytest.mark.parametrize("file", ids(FILES))
def test_a_script_makes_the_data_and_passes_its_arguments_on(file: Path, tmp_path: Path) -> None:
    nodes = file.stem.partition("x")[0]
    *before, last = started(file.parent / "run.sh", tmp_path, RECIPE=file.stem, NODES=nodes)
    assert tuple(last[-2:]) == WORDS
    if "-m" in last:  # the arithmetic recipe's own module, which makes the warm start too
        module = (ROOT / last[last.index("-m") + 1].replace(".", "/")).with_suffix(".py")
        text = module.read_text()
        assert file.name in text or ("from_scratch" in text and file.name in (RECIPES / "from_scratch.py").read_text())
        return
    assert last[-3] == f"recipes/{named(file)}"
    assert all((ROOT / word).is_file() for word in last if word.startswith("recipes/"))
    prepared = [" ".join(call).split() for call in before]
    asked = compose(str(file), []).config.trainer.prepare_command
    assert prepared == [command.split() for command in asked.split("&&")]


# --- pages ---


@pytest.mark.parametrize("folder", ids(FOLDERS))
def test_a_page_says_how_to_run_on_what_and_what_to_expect(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert [name for name in SECTIONS if name not in sections] == []
    assert f"recipes/{folder.name}/run.sh" in sections["Run"]
    statuses = {row.status for row in TABLE if row.file.parent == folder}
    assert statuses == ({"not yet run"} if NOT_RUN in sections["What to expect"] else {"measured"})
    planned = {row.memory.split()[0] for row in TABLE if row.file.parent == folder and row.memory}
    assert set(re.findall(r"says ([\d.]+) GiB at most", page)) <= planned
    if statuses == {"measured"}:
        assert len(re.findall(r"\d\.\d{2}", sections["What to expect"])) > 10, "a curve in figures"


def test_the_table_has_every_recipe() -> None:
    assert {row.file for row in TABLE} == set(FILES)


def test_the_table_leads_to_every_page() -> None:
    links = set(re.findall(r"\]\(([\w/]+/README\.md)\)", (RECIPES / "README.md").read_text()))
    assert links == {f"{folder.name}/README.md" for folder in FOLDERS}


# --- configurations ---


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_shapes(tmp_path_factory.mktemp("shapes"))


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_recipe_passes_the_checks_of_its_hardware_and_fits_as_the_table_says(
    row: Listed, models: dict[str, str], tmp_path: Path
) -> None:
    config = compose(str(row.file), [*row.overrides, f"trainer.output_dir={tmp_path}"]).config
    assert row.model == config.model.path
    nodes, gpus, device = row.devices
    for section in (config.model, config.ref, config.reward.model, config.reward.judge):
        section.path = models.get(section.path, section.path)
    assert contradictions(config, num_devices=nodes * gpus) == []
    assert config.cluster.num_nodes == nodes
    if device == "CPU":
        return
    ranks = config.cluster.workers_per_node or gpus
    place = Location(device=device_named(device), ranks=nodes * ranks, ranks_per_node=ranks)
    job = JOB_OF.get(row.file.stem, TRAIN)
    config = planned_config(config, job)
    plan = plan_of(config, shapes_of(config, job=job), place, job=job)
    assert plan.fits
    assert row.memory == f"{plan.peak_bytes / GIB:.1f} ({plan.fullest})"
    assert job != TRAIN or plan.cache_tokens >= 4 * plan.longest_row, "an engine with capacity for fewer rows is slow"


# --- data, rewards and a model, on this machine ---


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reader(tmp_path_factory.mktemp("reader") / "model")


def on_this_machine(file: Path, data: Path, reader: Path, out: Path) -> Config:
    """A recipe with a small model and few rows, as if this machine had workers for it, on CPU."""
    own = data.parent / "init"  # with a tokenizer for this recipe's short prompts
    if file.parent.name in WITH_PICTURES:
        reader = save_picture_reader(data.parent / "reader")
    reader = own if own.is_dir() else reader
    config = compose(
        str(file),
        [
            f"trainer.output_dir={out}",
            f"model.path={reader}",
            *([f"environment.python={sys.executable}"] if file.parent.name in OTHER_PYTHON else []),
            "data.train_batch_size=2",  # the least of kto, which compares rows
            "actor.mini_batch_size=2",
            "critic.mini_batch_size=2",
            "cluster.device=cpu",
            "cluster.workers_per_node=8",
            "rollout.max_num_batched_tokens=65536",  # on CPU an engine takes a prompt whole
        ],
    ).config
    for name, is_set in offloads(config).items():
        assert not is_set, f"{name} needs a GPU"
    config.data.train_files = [str(data / Path(name).name) for name in config.data.train_files]
    config.data.val_files = [str(data / Path(name).name) for name in config.data.val_files]
    for section in (config.ref, config.reward.model, config.reward.judge):
        section.path = str(reader) if section.path else ""
    return config


def as_sample(prompt: Prompt) -> Sample:
    """Return the prompt's ground truth as a response, which every reward must be able to score."""
    return Sample(
        response=str(prompt.ground_truth),
        prompt=prompt.text,
        messages=prompt.messages,
        data_source=prompt.data_source,
        ground_truth=prompt.ground_truth,
        extra_info=prompt.extra_info,
        columns=prompt.columns,
        response_ids=array("i", [0]),
    )


@pytest.mark.processes
@pytest.mark.parametrize("file", ids(FILES))
def test_a_recipe_reads_and_scores_what_its_prepare_command_makes(file: Path, reader: Path, tmp_path: Path) -> None:
    data = make_data(compose(str(file), []).config.trainer.prepare_command, tmp_path)
    config = on_this_machine(file, data, reader, tmp_path / "runs")
    read_preferences = partial(preference_rows, dpo=config.dpo)
    read = {"sft": sft_rows, "dpo": read_preferences, "rm": scored_pair_rows}.get(JOB_OF.get(file.stem, TRAIN))
    assert problems(config, num_devices=0, reads_prompts=read is None) == []
    tokenizer = load_tokenizer(config.model.path)
    if read:
        for files in filter(None, (config.data.train_files, config.data.val_files)):
            assert len(read(read_rows(files), config.data, tokenizer)[0]) > 0
        return
    train, held_out = (
        PromptDataset(
            read_rows(files),
            config.data,
            tokenizer,
            needs_ground_truth=config.needs_ground_truth,
            pictures=picture_tokens(config),
        )
        for files in (config.data.train_files, config.data.val_files)
    )
    # The games of an environment may differ only in columns, and questions only in their pictures.
    in_train, in_held_out = (
        {(prompt.text, repr(prompt.columns), repr(prompt.features)) for prompt in some} for some in (train, held_out)
    )
    assert not in_train & in_held_out
    with HttpService(reply({"choices": [{"message": {"content": "Quite good: [[7]]"}}]})) as judge:
        if "url" in config.reward.function_kwargs:
            config.reward.function_kwargs["url"] = judge.url.removesuffix("/score")
        specs = function_specs(config.scoring)
        scoring = Scoring(specs, max_concurrency=2, timeout_s=config.reward.timeout_s)
        prompts = [*train, *held_out][-4:]
        readings = scoring.ground_truth_readings(RowGroundTruth(p.data_source, p.ground_truth) for p in prompts)
        assert [reading.reason for some in readings for reading in some if reading.reason] == []
        outcomes = scoring.outcomes([as_sample(p) for p in prompts]) if specs else []
        assert [outcome.message for _, outcome in outcomes if outcome.status != "ok"] == []
