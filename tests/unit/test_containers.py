"""docker/: the Dockerfile and the Compose file, parsed without Docker; `make container-check` runs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tools.bare_image import BareImage
from tests.tools.dockerfile import Image, chain, context, parse, seconds, words_of
from verl_like.arguments import parsed
from verl_like.config.schema import Config
from verl_like.machine.probes import NEEDED_SHM_GIB

ROOT = Path(__file__).parents[2]
STAGES = parse((ROOT / "docker/Dockerfile").read_text())
TARGETS = ("cpu", "cuda")
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def image_of(target: str) -> Image:
    image = Image()
    for instruction in chain(STAGES, target)[1]:
        image.take(instruction, {})
    return image


# --- the Dockerfile


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_installs_by_the_makefile_alone(target: str) -> None:
    runs = [instruction.value for instruction in chain(STAGES, target)[1] if instruction.word == "RUN"]
    assert runs[2:] == ["make deps", "make setup"]
    assert not any("pip" in run for run in runs)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_of_an_image_is_installed_or_run_by_root(target: str) -> None:
    assert image_of(target).user == "verl"
    words = [instruction.word for instruction in chain(STAGES, target)[1]]
    assert words.index("USER") < words.index("COPY")
    copies = [instruction for instruction in chain(STAGES, target)[1] if instruction.word == "COPY"]
    assert {copy.flags.get("chown") for copy in copies} == {"verl:verl"}


@pytest.mark.parametrize("target", TARGETS)
def test_the_commands_of_an_image_are_commands_that_exist(target: str) -> None:
    image = image_of(target)
    assert image.entrypoint == ["verl-like"]
    assert parsed(image.command).command == "doctor"
    assert image.healthcheck[0] == "verl-like"
    assert parsed(image.healthcheck[1:]).quick
    assert image.environment["ACCELERATOR"] == target


@pytest.mark.parametrize("target", TARGETS)
def test_caches_are_in_a_volume_and_outputs_where_recipes_write_them(target: str) -> None:
    image = image_of(target)
    assert image.volumes == ["/cache", f"{image.workdir}/outputs"]
    caches = {name: image.environment[name] for name in ("HOME", "HF_HOME", "TORCHINDUCTOR_CACHE_DIR")}
    assert all(Path(folder).is_relative_to("/cache") for folder in caches.values()), caches


def test_both_targets_differ_in_their_accelerator_alone() -> None:
    instructions = {
        stage.name: [str(i) for i in stage.instructions if i.word not in ("FROM", "ARG", "ENV")] for stage in STAGES
    }
    assert instructions["cpu"] == instructions["cuda"]


def test_the_page_on_images_names_their_base_image() -> None:
    assert {chain(STAGES, target)[0] for target in TARGETS} == {"debian:bookworm-slim"}
    assert "debian:bookworm-slim" in (ROOT / "docker/README.md").read_text()


# --- how it is read


def test_comments_and_the_lines_of_one_instruction_are_joined() -> None:
    (stage,) = parse("# a comment\nFROM x AS a\nRUN one \\\n# between\n    && two\n")
    assert [(str(i), i.line) for i in stage.instructions] == [("FROM x AS a", 2), ("RUN one && two", 3)]


def test_variables_come_from_what_stands_above_and_from_the_build() -> None:
    (stage,) = parse("FROM x AS a\nARG B=1\nARG C=2\nENV D=$B-${C} E=$NOWHERE PATH=/a:$PATH\nWORKDIR /w/$D")
    image = Image()
    for instruction in stage.instructions:
        image.take(instruction, {"C": "3"})
    assert (image.environment["D"], image.environment["E"], image.workdir) == ("1-3", "", "/w/1-3")
    assert image.environment["PATH"].startswith("/a:/usr/local/sbin:")


def test_commands_are_lists_of_words_or_lines_for_the_shell() -> None:
    assert words_of('["a", "b c"]') == ["a", "b c"]
    assert words_of("a b") == ["/bin/sh", "-c", "a b"]
    assert [seconds(text) for text in ("90s", "2m", "1h")] == [90, 120, 3600]


def test_a_target_begins_with_all_that_its_bases_say() -> None:
    stages = parse("FROM x AS a\nRUN one\nFROM a AS b\nRUN two\nFROM a AS c\nRUN three\n")
    image, instructions = chain(stages, "c")
    assert image == "x"
    assert [i.value for i in instructions if i.word == "RUN"] == ["one", "three"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM x AS a\nADD y z", "line 2: found ADD, expected one of"),
        ("FROM x AS a\nCOPY --from=b y z", "found --from of COPY"),
        ("FROM x", "Give the stage a name"),
        ("RUN y", "before the first FROM"),
        ("FROM x AS a\nRUN <<EOF", "found a here-document"),
    ],
)
def test_what_could_not_be_carried_out_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_base_that_cannot_be_made_here_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM fedora:41 AS cpu\n")
    (tmp_path / "Dockerfile.dockerignore").touch()
    with pytest.raises(ValueError, match="expected debian:SUITE-slim"):
        BareImage(tmp_path / "root", print).build(tmp_path / "Dockerfile", tmp_path, target="cpu", arguments={})


def test_what_is_ignored_does_not_reach_an_image(tmp_path: Path) -> None:
    for name in (".venv/bin/python", "outputs/run/x", "docs/outputs/y", "a/__pycache__/z.pyc", "a/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    ignored = (ROOT / "docker/Dockerfile.dockerignore").read_text().split()
    assert [str(file) for file in context(tmp_path, ignored)] == ["a/b.py", "docs/outputs/y"]


def test_what_git_ignores_reaches_no_image() -> None:
    ours = {line.removeprefix("**/") for line in (ROOT / "docker/Dockerfile.dockerignore").read_text().split()}
    assert {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()} <= ours


# --- the Compose file


def test_services_are_built_from_targets_that_exist() -> None:
    for name, service in SERVICES.items():
        build = service["build"]
        assert (ROOT / "docker" / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
        assert build["target"] in TARGETS
        assert service["image"] == f"verl-like:{build['target']}", name
        arguments = {i.value.partition("=")[0] for i in chain(STAGES, build["target"])[1] if i.word == "ARG"}
        assert set(build.get("args", {})) <= arguments, name


def test_volumes_of_services_are_declared_and_are_where_the_image_has_its_own() -> None:
    for service in SERVICES.values():
        parts = [volume.split(":") for volume in service["volumes"]]
        assert {name for name, *_ in parts} <= set(COMPOSE["volumes"])
        assert {target for _, target, *_ in parts} <= set(image_of("cpu").volumes)


@pytest.mark.parametrize("name", ["train", "train-cuda"])
def test_a_training_runs_what_make_train_runs_with_memory_and_time_to_end(name: str) -> None:
    service = SERVICES[name]
    recipe = re.search(r"^train: setup.*\n\t\$\(BIN\)/(.*) \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert service["entrypoint"] == recipe[1].split()
    assert float(service["shm_size"].removesuffix("gb")) > NEEDED_SHM_GIB
    assert seconds(service["stop_grace_period"]) > Config().trainer.grace_s
    assert service["init"] is True


def test_only_the_training_on_gpus_asks_for_them() -> None:
    asking = [name for name, service in SERVICES.items() if "deploy" in service]
    assert asking == ["train-cuda"]
    assert SERVICES["train-cuda"]["profiles"] == ["cuda"]


def test_tensorboard_reads_what_the_training_writes_and_is_seen_from_this_machine_alone() -> None:
    service = SERVICES["tensorboard"]
    words = dict(zip(service["command"][::2], service["command"][1::2], strict=True))
    written = next(volume for volume in SERVICES["train"]["volumes"] if volume.startswith("outputs:"))
    assert service["volumes"] == [f"{written}:ro"]
    assert written == f"outputs:{words['--logdir']}"
    assert service["ports"] == [f"127.0.0.1:{words['--port']}:{words['--port']}"]
    assert f"localhost:{words['--port']}/" in service["healthcheck"]["test"][-1], "the image's own asks for a training"
    assert "tensorboard" in Config().trainer.loggers
