"""Composing: later wins, origins are right, mistakes get a message that names the key."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from functools import partial
from pathlib import Path

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

from verl_like.config.compose import Composed, compose, read
from verl_like.config.folders import group_dirs
from verl_like.config.options import options, value_of
from verl_like.config.problems import Refused, without_echoes
from verl_like.config.reading_limits import bounded
from verl_like.config.render import render, render_changed
from verl_like.config.schema import Config

ROOT = Path(__file__).parents[2]


def recipe(folder: Path, text: str, name: str = "recipe.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def message(*overrides: str, file: str | None = None) -> str:
    with pytest.raises(ValueError) as caught:
        compose(file, list(overrides))
    return str(caught.value)


def test_without_a_recipe_values_are_the_schemas_defaults_and_the_default_groups() -> None:
    composed = compose(None, [])
    assert composed.config == Config()
    assert composed.origins["rollout.n"] == "default"
    assert composed.origins["algorithm.adv_estimator"] == "conf/algorithm/grpo.yaml"


def test_command_line_wins_over_recipe_wins_over_group_wins_over_default(tmp_path: Path) -> None:
    file = recipe(tmp_path, "defaults: [config, override algorithm: ppo, _self_]\nrollout: {n: 4, temperature: 0.9}\n")
    composed = compose(file, ["rollout.n=2"])
    config, origins = composed.config, composed.origins
    assert (config.rollout.n, origins["rollout.n"]) == (2, "command line")
    assert (config.rollout.temperature, origins["rollout.temperature"]) == (0.9, file)
    assert (config.algorithm.adv_estimator, origins["algorithm.adv_estimator"]) == ("gae", "conf/algorithm/ppo.yaml")
    assert (config.rollout.top_p, origins["rollout.top_p"]) == (1.0, "default")


def test_what_differs_from_the_defaults_is_shown_with_who_set_it_and_nothing_else() -> None:
    assert render_changed(compose(None, [])) == ""
    changed = compose(None, ["trainer.seed=2", "rollout.val.n=4", "rollout.temperature=1.0"])  # the last is the default
    assert render_changed(changed) == (
        "rollout:\n  val:\n    n: 4   # command line\ntrainer:\n  seed: 2  # command line\n"
    )


def test_a_recipe_in_the_working_directory_is_named_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    recipe(tmp_path / "recipes", "rollout: {n: 4}\n")
    composed = compose("recipes/recipe.yaml", [])
    assert composed.origins["rollout.n"] == "recipes/recipe.yaml"


def test_group_choice_and_key_give_the_same_estimator() -> None:
    by_group, by_key = compose(None, ["algorithm=ppo"]), compose(None, ["algorithm.adv_estimator=gae"])
    assert by_group.config.algorithm.adv_estimator == by_key.config.algorithm.adv_estimator == "gae"
    assert by_key.origins["algorithm.adv_estimator"] == "command line"


def test_a_group_on_the_command_line_replaces_the_recipes_choice(tmp_path: Path) -> None:
    file = recipe(tmp_path, "defaults: [config, override algorithm: ppo, _self_]\nrollout: {n: 4}\n")
    assert compose(file, ["algorithm=grpo"]).config.algorithm.adv_estimator == "grpo"


def test_a_group_that_would_lose_to_the_recipe_is_refused(tmp_path: Path) -> None:
    file = recipe(tmp_path, "defaults: [config, _self_]\nalgorithm: {adv_estimator: grpo}\n")
    text = message("algorithm=ppo", file=file)
    assert "algorithm.adv_estimator=gae" in text
    assert file in text


def test_every_shipped_group_option_composes() -> None:
    options = [(file.parent.name, file.stem) for folder in group_dirs() for file in folder.glob("*.yaml")]
    assert ("algorithm", "ppo") in options
    for group, option in options:
        assert compose(None, [f"{group}={option}"])


def test_interpolation_follows_the_command_line(tmp_path: Path) -> None:
    file = recipe(tmp_path, "data: {max_response_length: '${data.max_prompt_length}'}\n")
    composed = compose(file, ["data.max_prompt_length=7"])
    assert composed.config.data.max_response_length == 7


def test_paths_stay_as_they_were_written_and_the_working_directory_does_not_change(tmp_path: Path) -> None:
    file = recipe(tmp_path, "data: {train_files: [data/train.parquet]}\n")
    before = Path.cwd()
    assert compose(file, []).config.data.train_files == ["data/train.parquet"]
    assert Path.cwd() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.yaml"]


@pytest.mark.parametrize("name", ["recipe.yaml", "config.yaml"])
def test_a_saved_configuration_composes_to_an_equal_one(tmp_path: Path, name: str) -> None:
    composed = compose(
        None,
        [
            "algorithm=ppo",
            "rollout.engine_kwargs={seed: 3}",
            "actor.optim.lr=3e-7",
            "cluster.env.A=1",
            "data.format_prompt='Solve: {{ content }}'",
            "trainer.experiment_name=2024_01",
        ],
    )
    saved = recipe(tmp_path, composed.yaml(), name)
    assert compose(saved, []).config == composed.config


def test_a_folder_with_spaces_and_brackets_is_fine(tmp_path: Path) -> None:
    folder = tmp_path / "my runs (old), [x=1]"
    folder.mkdir()
    assert compose(recipe(folder, "defaults: [config, _self_]\nrollout: {n: 3}\n"), []).config.rollout.n == 3


def test_mappings_take_new_keys_without_a_plus(tmp_path: Path) -> None:
    file = recipe(tmp_path, "rollout: {engine_kwargs: {seed: 3}}\n")
    composed = compose(file, ["rollout.engine_kwargs.block_size=16", "+cluster.env.TOKEN=a"])
    assert composed.config.rollout.engine_kwargs == {"seed": 3, "block_size": 16}
    assert composed.config.cluster.env == {"TOKEN": "a"}
    assert composed.origins["rollout.engine_kwargs"] == "command line"


def test_an_empty_mapping_empties_what_a_recipe_has_set(tmp_path: Path) -> None:
    file = recipe(tmp_path, "data: {chat_template_kwargs: {enable_thinking: false}}\n")
    assert compose(file, ["data.chat_template_kwargs={}"]).config.data.chat_template_kwargs == {}
    child = recipe(tmp_path, "defaults: [recipe, _self_]\ndata: {chat_template_kwargs: {}}\n", "child.yaml")
    assert compose(child, []).config.data.chat_template_kwargs == {}


def test_a_recipe_inherits_from_one_of_another_folder(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    recipe(tmp_path / "first", "defaults: [/config, _self_]\nrollout: {n: 5, temperature: 0.5}\n", "base.yaml")
    text = "defaults: [../first/base@_global_, override /algorithm: rloo, _self_]\nrollout: {n: 6}\n"
    composed = compose(recipe(tmp_path / "second", text), [])
    assert (composed.config.rollout.n, composed.config.rollout.temperature) == (6, 0.5)
    assert composed.config.algorithm.adv_estimator == "rloo"
    assert composed.origins["rollout.temperature"] == str(tmp_path / "first/base.yaml")


@pytest.mark.parametrize("written", ["2024_01", "1e-6", "007", "true"])
def test_text_that_looks_like_a_number_stays_as_written(written: str) -> None:
    assert compose(None, [f"trainer.experiment_name={written}"]).config.trainer.experiment_name == written


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("data.prompt_key", "プロンプト"),
        ("data.prompt_key", "a question, in two parts"),
        ("trainer.output_dir", "my runs (old), [x=1]"),
        ("trainer.project_name", "50% more"),
        ("trainer.project_name", "it's mine"),
        ("data.format_prompt", "Solve: {{ content }}\nAnswer:"),
        ("reward.judge.score_pattern", r"\[\[(\d+)\]\]"),
        ("reward.judge.score_pattern", "[0-9]"),
        ("model.path", "C:\\models\\qwen"),
    ],
)
def test_text_is_taken_as_it_is_written(name: str, written: str) -> None:
    composed = compose(None, [f"{name}={written}"])
    assert value_of(composed.config, name) == written
    assert composed.origins[name] == "command line"


def test_quotes_around_text_are_the_grammars() -> None:
    assert compose(None, ["data.prompt_key='a, b'"]).config.data.prompt_key == "a, b"
    assert compose(None, ['data.prompt_key="[a]"']).config.data.prompt_key == "[a]"


def test_lists_and_mappings_are_read_where_they_are_wanted() -> None:
    words = [
        "data.train_files=[a.parquet, b c.parquet]",
        "data.val_files=[données/プロンプト.jsonl]",
        "data.chat_template_kwargs={thinking: false, größe: [1, 2]}",
        "cluster.env.TOKEN=a b, c=d (e)",
    ]
    config = compose(None, words).config
    assert config.data.train_files == ["a.parquet", "b c.parquet"]
    assert config.data.val_files == ["données/プロンプト.jsonl"]
    assert config.data.chat_template_kwargs == {"thinking": False, "größe": [1, 2]}
    assert config.cluster.env == {"TOKEN": "a b, c=d (e)"}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_launch_script_instead_of_a_recipe_is_led_to_migrate(tmp_path: Path, is_there: bool) -> None:
    script = tmp_path / "run.sh"
    if is_there:
        script.touch()
    with pytest.raises(ValueError, match=rf"run.sh is not a recipe.* verl-like migrate --from verl {script}$"):
        compose(str(script), [])


def test_a_run_folder_instead_of_a_recipe_is_led_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(ValueError, match=rf"a folder, but must be a .yaml file; did you mean {tmp_path}/config.yaml\?"):
        compose(str(tmp_path), [])


def test_every_mistake_of_recipe_and_command_line_is_in_one_error(tmp_path: Path) -> None:
    file = recipe(tmp_path, "rollout: {temprature: 1, n: many, top_p: 2.0}\ndata: {shuffle: 3}\n")
    with pytest.raises(Refused) as caught:
        compose(
            file, ["rollout.n=[", "rolout.n=3", "algorithm=pppo", "~rollout.n", "actor.epochs=1,2", "actor.epochs=0"]
        )
    for part in (
        "unknown key rollout.temprature in",
        "rollout.n is 'many'",
        "data.shuffle is 3",
        "cannot read the override rollout.n=[",
        "unknown key rolout.n",
        "algorithm=pppo chooses no file",
        "~rollout.n removes a key",
        "actor.epochs=1,2 holds several values",
        "rollout.top_p is 2.0",
        "actor.epochs is 0",
    ):
        assert sum(part in problem for problem in caught.value.problems) == 1, part
    assert len(caught.value.problems) == 10


def test_what_is_wrong_has_its_default_for_the_checks_that_follow() -> None:
    composed, problems = read(None, ["rollout.n=0", "actor.epochs=many", "data.train_batch_size=16"])
    assert len(problems) == 2
    assert (composed.config.rollout.n, composed.config.actor.epochs) == (Config().rollout.n, Config().actor.epochs)
    assert composed.config.data.train_batch_size == 16


def test_a_problem_that_echoes_an_earlier_one_is_left_out() -> None:
    earlier = ["unknown key model.paht; did you mean model.path?"]
    later = ["model.path is empty.", "rollout.n is 1.", "a sentence. e.g. this one"]
    assert without_echoes(earlier, later) == later[1:]


def test_hydras_global_state_is_clean_after_success_and_failure() -> None:
    stored = set(ConfigStore.instance().repo)
    compose(None, [])
    message("rollout.n=0")
    assert not GlobalHydra.instance().is_initialized()
    assert set(ConfigStore.instance().repo) == stored


def test_a_mapping_sets_the_section_that_a_group_is_called_after() -> None:
    assert compose(None, ["rollout={n: 3}"]).config.rollout.n == 3
    assert "algorithm=[a] chooses no file of conf/algorithm" in message("algorithm=[a]")


def test_booleans_are_words_if_an_option_has_choices() -> None:
    assert compose(None, ["model.gradient_checkpointing=True"]).config.model.gradient_checkpointing == "true"
    assert compose(None, ["trainer.experiment_name=True"]).config.trainer.experiment_name == "True"


def test_an_unknown_key_is_refused_with_the_keys_of_its_section() -> None:
    assert message("rollout.gpus=1") == "unknown key rollout.gpus; did you mean cluster.workers_per_node?"
    assert message("cluster.zzz=1").startswith("unknown key cluster.zzz; cluster has address, device, num_nodes, ")
    assert "did you mean" not in message("cluster.device=gpu")


def test_files_next_to_a_recipe_are_not_the_shipped_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("actor: {optim: {lr: 0.5}}\n")
    (tmp_path / "mine.yaml").write_text("defaults: [/config, _self_]\nrollout: {n: 3}\n")
    found = compose(str(tmp_path / "mine.yaml"), []).config
    assert (found.rollout.n, found.actor.optim.lr) == (3, Config().actor.optim.lr)
    (tmp_path / "config.yaml").write_text("defaults: [/config, _self_]\n")
    with pytest.raises(ValueError, match="is itself called config"):
        compose(str(tmp_path / "config.yaml"), [])


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("rollout.temprature=1", "unknown key rollout.temprature; did you mean rollout.temperature?"),
        ("actor.lr=1", "unknown key actor.lr; did you mean actor.optim.lr?"),
        ("algorthm=ppo", "unknown key algorthm; did you mean algorithm?"),
        ("temperature=1", "did you mean rollout.temperature?"),
        ("hydra.run.dir=x", "unknown key hydra.run.dir"),
        ("rollout.n=many", "rollout.n is 'many' (command line), but must be an integer."),
        ("rollout.n=1.5", "rollout.n is 1.5 (command line), but must be an integer."),
        ("rollout.n=true", "rollout.n is True (command line), but must be an integer."),
        ("data.shuffle=2", "data.shuffle is 2 (command line), but must be true or false."),
        ("model.path=null", "model.path is None (command line), but must be a string."),
        (
            "algorithm.distill_coef=inf",
            "algorithm.distill_coef is inf (command line), but must be a number of at least 0.",
        ),
        (
            "cluster.placement={ref: {n: 1}}",
            "cluster.placement is {'ref': {'n': 1}} (command line), but must be a mapping to numbers, e.g. {key: 1}.",
        ),
        (
            "ref.teachers={math: ''}",
            "ref.teachers is {'math': ''} (command line), but must be a mapping of names to folders or hub names, e.g. "
            "{math: path1, code: path2}.",
        ),
        ("rollout.n=0", "rollout.n is 0 (command line), but must be a number above 0."),
        (
            "actor.optim.lr=1e308",
            "lr is 1e+308 (command line), but must be 0, or from 1.2e-38 to 3.4e38 in absolute value (float32).",
        ),
        ("dpo.beta=1e-300", "dpo.beta is 1e-300 (command line), but must be 0, or from 1.2e-38 to"),
        ("dpo.losses={sft: 1e100}", "dpo.losses is {'sft': 1e+100} (command line), but must be 0, or from 1.2e-38 to"),
        ("rollout.top_p=1.5", "rollout.top_p is 1.5 (command line), but must be a number above 0, at most 1."),
        ("rollout.backend=vlm", "must be one of vllm, hf; did you mean vllm?"),
        ("algorithm=gpro", "did you mean grpo?"),
        ("rollout=vlm", "rollout=vlm chooses no file of conf/rollout: expected one of hf, vllm; did you mean vllm?"),
        ("data.train_files=5", "data.train_files is 5 (command line), but must be a list, e.g. [a, b]."),
        ("trainer.n_gpus_per_node=8", "it is verl's name: write cluster.workers_per_node=8."),
        ("ppo_mini_batch_size=3", "unknown key ppo_mini_batch_size; did you mean actor.mini_batch_size?"),
        ("rollout.val_kwargs.n=4", "unknown key rollout.val_kwargs.n; did you mean rollout.val.n?"),
        ("ulysses_sequence_parallel_size=2", "did you mean actor.sequence_parallel_size?"),
        ("rollout.gpu_memory_util=1", "did you mean rollout.gpu_memory_utilization?"),
        ("algorithm.use_kl_in_reward=true", "; it is verl's name: write algorithm.kl_coef=0.001."),
        ("actor_rollout_ref.rollout.mode=async", "has no effect in verl_like: verl_like has one trainer"),
        ("actor_rollout_ref.model.use_shm=true", "has no effect in verl_like"),
        ("data.custom_cls.path=x.py", "it is verl's name. Use a function that returns rows"),
        ("worker.rollout.limit_images=0", "it is easyr1's name and has no effect in verl_like"),
        (
            "actor.kl_loss_type=low_var_kl",
            "but must be one of k1, k2, k3, abs, k1+, k2+, k3+, abs+; it is verl's name for k3.",
        ),
        ("compat=verl", "unknown key compat"),
        ("data.train_files=a,b", "For a list write data.train_files=[a,b]"),
        ("~rollout.n", "Set it instead: rollout.n=VALUE."),
        ("model=x", "model is 'x' (command line), but is a section"),
        ("algorithm.lam=${data.foo}", "Interpolation key 'data.foo' not found"),
        ("rollout.n", "cannot read the override rollout.n: missing EQUAL"),
        ("rollout.n=[", "cannot read the override rollout.n=["),
    ],
)
def test_a_mistake_on_the_command_line_names_the_key_and_the_remedy(override: str, expected: str) -> None:
    assert expected in message(override)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rollout: {temprature: 1}", "unknown key rollout.temprature in {file}; did you mean rollout.temperature?"),
        ("rollout: {n: many}", "rollout.n is 'many' ({file}), but must be an integer."),
        ("rollout: 5", "rollout is 5 ({file}), but is a section"),
        ("- rollout", "{file} holds a list, but must be a mapping of sections."),
        ("rollout: {n: 1", "cannot compose {file}"),
        ("defaults: [config, override algorithm: pppo]", "pppo"),
        ("rollout: {backend: vlm}", "rollout.backend is 'vlm' ({file}), but must be one of vllm, hf"),
    ],
)
def test_a_mistake_in_a_recipe_names_key_and_file(tmp_path: Path, text: str, expected: str) -> None:
    file = recipe(tmp_path, text)
    assert expected.replace("{file}", file) in message(file=file)


def test_a_recipe_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_bytes(b"\0\xff")
    assert f"cannot compose {file}" in message(file=str(file))


def test_a_missing_recipe_suggests_its_neighbour(tmp_path: Path) -> None:
    there = recipe(tmp_path, "rollout: {n: 2}\n", "grpo.yaml")
    assert f"did you mean {there}?" in message(file=str(tmp_path / "gpro.yaml"))


def test_render_is_yaml_whose_comments_say_where_each_leaf_came_from() -> None:
    composed = compose(None, ["rollout.n=2"])
    text = render(composed)
    parsed = compose_from_text(text)
    assert parsed == composed.config
    lines = {line.split(":")[0].strip(): line for line in text.splitlines() if "#" in line}
    assert lines["adv_estimator"].endswith("# conf/algorithm/grpo.yaml")
    assert "  n: 2 " in text
    assert len({line.index("#") for line in text.splitlines() if "#" in line}) == 1


def compose_from_text(text: str) -> Config:
    """Return the configuration of a rendered text, parsed only as YAML."""
    config = Config()
    tree = yaml.safe_load(text)
    for name in options():
        node = tree
        *parents, leaf = name.split(".")
        section = config
        for parent in parents:
            node, section = node[parent], getattr(section, parent)
        setattr(section, leaf, node[leaf])
    return config


def test_render_with_docs_shows_sentence_unit_and_choices() -> None:
    text = render(compose(None, []), docs=True)
    assert all(option.doc in text for option in options().values())
    assert "Longest prompt kept. [tokens]" in text
    assert "(vllm | hf)" in text


def test_every_option_has_a_sentence_and_a_default_that_passes_its_check() -> None:
    config = Config()
    for name, option in options().items():
        assert option.doc.endswith("."), name
        assert option.accepts_type(value_of(config, name)), name
        assert option.check is None or (option.expected and option.check(value_of(config, name))), name
    assert isinstance(compose(None, []), Composed)


@pytest.mark.processes
def test_a_wheel_carries_the_groups_and_finds_them(tmp_path: Path) -> None:
    source = tmp_path / "source"  # setuptools leaves build/ and egg-info where it builds
    for part in ("verl_like", "verl_like_environments", "verl_like_graders", "verl_like_migrate", "conf"):
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / part, source)
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    command = [*pip_wheel, "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    shipped = {
        f"verl_like/conf/{file.relative_to(ROOT / 'conf').as_posix()}" for file in (ROOT / "conf").rglob("*.yaml")
    }
    assert shipped | {"verl_like_graders/README.md", "verl_like_graders/py.typed"} <= set(names)
    assert not any(name.startswith(("tests/", "recipes/", "benchmarks/")) for name in names)
    code = "from verl_like.config.compose import compose; from verl_like.config.folders import conf_dir; print(conf_dir(), compose(None, ['algorithm=ppo']).config.algorithm)"  # noqa: E501
    found = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=60,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
    ).stdout
    assert {f"verl_like_migrate/keys/{peer}.yaml" for peer in ("verl", "easyr1", "openrlhf", "trl")} <= set(names)
    assert found.startswith(f"{tmp_path / 'site/verl_like/conf'} AlgorithmConfig(adv_estimator='gae'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 60)),
            "its aliases expand to more than 100,000 values",
        ),
        ("model: " + "{a: " * 2000 + "1" + "}" * 2000, "nested deeper than can be read"),
        ("trainer:\n  experiment_name: " + "x" * 2_000_001, "no configuration has more than 2,000,000"),
        (
            "trainer:\n  project_name: ${trainer.experiment_name}${trainer.experiment_name}\n"
            "  experiment_name: " + "${trainer.output_dir}" * 200 + "\n  output_dir: " + "${trainer.remote_dir}" * 200,
            "refers to values that refer to others",
        ),
        ("trainer:\n  experiment_name: 2024-13-45T99:99:99Z\n  seed: !!timestamp 2024-13-45", "cannot compose"),
    ],
)
def test_a_recipe_without_an_end_is_refused_at_once(text: str, message: str, tmp_path: Path) -> None:
    path = recipe(tmp_path, text)
    started = time.monotonic()
    with pytest.raises(ValueError) as refused:
        compose(path, [])
    assert message in str(refused.value)
    assert time.monotonic() - started < 10


def test_what_takes_too_long_to_compose_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = ["a0: x", *(f"a{i}: ${{.a{i - 1}}}${{.a{i - 1}}}" for i in range(1, 60))]
    path = recipe(tmp_path, "rollout:\n  engine_kwargs:\n    " + "\n    ".join(lines))
    monkeypatch.setattr("verl_like.config.compose.bounded", partial(bounded, longest_s=0.5))
    with pytest.raises(ValueError, match=r"takes more than 0\.5 s to read"):
        compose(path, [])


def test_reading_within_limits_leaves_alarms_and_limits_as_they_were() -> None:
    before = signal.getsignal(signal.SIGALRM), resource.getrlimit(resource.RLIMIT_AS)
    with bounded("this", remedy="Shorten it."):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert (signal.getsignal(signal.SIGALRM), resource.getrlimit(resource.RLIMIT_AS)) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_what_takes_too_much_memory_to_read_is_refused() -> None:
    with pytest.raises(ValueError, match=r"takes more than 2 GiB of memory to read\. Shorten it"):
        with bounded("this", remedy="Shorten it."):
            bytearray(3 * 2**30)
