"""A user's own estimator or policy loss, by file or module: found without registration, refused with the reason."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit._policy_losses import loss_of
from verl_like.algorithms.advantages import ADVANTAGES, estimator, estimator_of
from verl_like.algorithms.lookup import Imported
from verl_like.algorithms.policy_losses import POLICY_LOSSES, policy_loss, policy_loss_of
from verl_like.algorithms.types import AdvantageInputs, BatchTotals, LossInputs
from verl_like.checks.algorithm import algorithms_exist
from verl_like.config.schema import ActorConfig, AlgorithmConfig, Config, PolicyLossConfig

HEAD = """
from verl_like.algorithms.advantages import Estimator
from verl_like.algorithms.policy_losses import PolicyLoss
from verl_like.algorithms.types import Advantages, TokenLosses
"""
ESTIMATORS = (
    HEAD
    + """
SCALE = 3.0

def doubled(inputs, config):
    advantages = 2 * inputs.rewards
    return Advantages(advantages=advantages, returns=advantages)

with_values = Estimator(fn=doubled, needs=frozenset({"values"}), compares_siblings=True)
"""
)
LOSSES = (
    HEAD
    + """
def plain(inputs, config):
    return TokenLosses(losses=-inputs.log_probs * inputs.advantages)

ranked = PolicyLoss(fn=plain, needs=frozenset({"covariance_rank"}))
"""
)


def file_with(folder: Path, source: str, name: str = "mine.py") -> Path:
    (folder / name).write_text(source)
    return folder / name


def advantages_of(name: str) -> list[list[float]]:
    inputs = AdvantageInputs(
        rewards=torch.tensor([[0.0, 1.5]]), response_mask=torch.ones(1, 2, dtype=torch.bool), group_ids=torch.zeros(1)
    )
    found: list[list[float]] = estimator(name)(inputs, AlgorithmConfig()).advantages.tolist()
    return found


@pytest.mark.parametrize("name", [*ADVANTAGES, *POLICY_LOSSES])
def test_every_entry_of_the_tables_says_where_its_functions_are(name: str) -> None:
    listed = [ADVANTAGES[name].fn, ADVANTAGES[name].final_step] if name in ADVANTAGES else []
    listed += [POLICY_LOSSES[name].fn] if name in POLICY_LOSSES else []
    for fn in filter(None, listed):
        assert isinstance(fn, Imported) and inspect.isfunction(fn.function)


def refusal(name: str, *, option: str = "algorithm.adv_estimator") -> str:
    """Return the message with which this name is refused."""
    with pytest.raises(ValueError) as caught:
        _ = policy_loss(name) if option == "actor.policy_loss" else estimator(name)
    return str(caught.value)


# --- what is found


def test_a_function_of_a_file_is_an_estimator_of_rewards_alone(tmp_path: Path) -> None:
    name = f"{file_with(tmp_path, ESTIMATORS)}:doubled"
    assert advantages_of(name) == [[0.0, 3.0]]
    assert not estimator(name).needs and not estimator(name).compares_siblings


def test_an_estimator_of_a_file_says_itself_what_it_needs(tmp_path: Path) -> None:
    found = estimator(f"{file_with(tmp_path, ESTIMATORS)}:with_values")
    assert found.needs == {"values"} and found.compares_siblings


def test_a_function_of_a_file_is_a_policy_loss_of_which_nothing_is_known(tmp_path: Path) -> None:
    found = policy_loss(f"{file_with(tmp_path, LOSSES)}:plain")
    inputs = LossInputs(
        log_probs=torch.tensor([[-1.0, -2.0]]),
        old_log_probs=torch.zeros(1, 2),
        advantages=torch.tensor([[1.0, 3.0]]),
        response_mask=torch.tensor([[True, False]]),
        totals=BatchTotals(num_tokens=2.0, num_sequences=1.0, max_response_tokens=2),
    )
    assert loss_of(found, inputs, PolicyLossConfig()).loss.item() == 0.5, "the masked token plays no part: 1 * 1 / 2"
    assert found.acts_without_advantage, "so that no row is left out for it"
    assert not found.needs


def test_a_policy_loss_of_a_file_says_itself_what_it_needs(tmp_path: Path) -> None:
    found = policy_loss(f"{file_with(tmp_path, LOSSES)}:ranked")
    assert found.needs == {"covariance_rank"} and not found.acts_without_advantage


def test_a_path_is_taken_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_with(tmp_path, ESTIMATORS)
    monkeypatch.chdir(tmp_path)
    assert advantages_of("mine.py:doubled") == [[0.0, 3.0]]
    assert advantages_of("./mine.py:doubled") == [[0.0, 3.0]]


def test_a_path_may_start_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_with(tmp_path, ESTIMATORS)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert advantages_of("~/mine.py:doubled") == [[0.0, 3.0]]


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path: Path) -> None:
    paths = []
    for factor in (2, 5):
        (tmp_path / str(factor)).mkdir()
        paths.append(file_with(tmp_path / str(factor), ESTIMATORS.replace("2 *", f"{factor} *")))
    assert [advantages_of(f"{path}:doubled") for path in paths] == [[[0.0, 3.0]], [[0.0, 7.5]]]


def test_a_file_is_imported_once_for_all_its_names(tmp_path: Path) -> None:
    path = file_with(
        tmp_path,
        ESTIMATORS + "\nfrom pathlib import Path\nwith Path(__file__).with_name('imports').open('a') as out:\n"
        "    out.write('x')\n",
    )
    for name in ("doubled", "with_values", "doubled"):
        estimator(f"{path}:{name}")
    assert (tmp_path / "imports").read_text() == "x"


def test_a_file_may_import_its_neighbours_and_define_dataclasses(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("FACTOR = 4\n")
    source = ESTIMATORS.replace("2 *", "FACTOR *") + (
        "\nfrom dataclasses import dataclass\nfrom neighbour_of_mine import FACTOR\n\n"
        "@dataclass(slots=True)\nclass Pair:\n    left: 'int'\n"
    )
    assert advantages_of(f"{file_with(tmp_path, source)}:doubled") == [[0.0, 6.0]]


def test_module_and_name_work_where_the_module_can_be_imported() -> None:
    assert estimator("verl_like.algorithms.advantages.by_response:rloo") is ADVANTAGES["rloo"]
    listed = POLICY_LOSSES["ppo"].fn
    assert isinstance(listed, Imported)
    assert policy_loss("verl_like.algorithms.policy_losses.ratio:ppo").fn is listed.function


# --- what is refused


def test_a_missing_file_is_named_with_the_folders_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal("nowhere.py:f") == (
        "algorithm.adv_estimator=nowhere.py:f: the file nowhere.py does not exist (looked from "
        f"{tmp_path}). Correct the path; the form is path/to/file.py:name."
    )
    assert refusal("nowhere.py:f", option="actor.policy_loss").startswith(
        "actor.policy_loss=nowhere.py:f: the file nowhere.py"
    )


def test_a_name_that_the_file_does_not_define_is_refused_with_those_it_does(tmp_path: Path) -> None:
    path = file_with(tmp_path, ESTIMATORS)
    assert refusal(f"{path}:trippled") == (
        f"algorithm.adv_estimator={path}:trippled: {path} defines no 'trippled'; its functions are "
        "['doubled']. Correct the name after the colon."
    )


def test_a_name_that_is_no_function_is_refused_with_what_it_is(tmp_path: Path) -> None:
    path = file_with(tmp_path, ESTIMATORS)
    assert "'SCALE' in " in refusal(f"{path}:SCALE") and "is a float, not a function" in refusal(f"{path}:SCALE")
    assert "is a float, not a function" in refusal(f"{path}:SCALE", option="actor.policy_loss")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def broken():\n    return undefined_thing\nbroken()\n", "NameError: name 'undefined_thing' is not defined"),
        ("def f(inputs, config)\n    pass\n", "SyntaxError: expected ':'"),
        ("import not_installed_anywhere\n", "ModuleNotFoundError: No module named 'not_installed_anywhere'"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_failing_import_shows_the_end_of_its_traceback(tmp_path: Path, source: str, reason: str) -> None:
    path = file_with(tmp_path, source)
    text = refusal(f"{path}:f")
    assert text.startswith(f"algorithm.adv_estimator={path}:f: importing {path} failed:\n")
    assert reason in text and text.endswith("Correct the file.")


def test_a_corrected_file_is_imported_again_after_a_failure(tmp_path: Path) -> None:
    path = file_with(tmp_path, "raise RuntimeError('not yet')\n")
    assert "not yet" in refusal(f"{path}:doubled")
    file_with(tmp_path, ESTIMATORS)
    assert advantages_of(f"{path}:doubled") == [[0.0, 3.0]]


def test_a_module_that_is_not_there_is_refused_and_one_that_fails_inside_shows_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file_with(tmp_path, "import not_installed_anywhere\n", "module_of_mine_that_fails.py")
    assert refusal("not_a_module_of_mine:f") == (
        "algorithm.adv_estimator=not_a_module_of_mine:f: no module 'not_a_module_of_mine' on "
        "sys.path. Install it, or set PYTHONPATH."
    )
    with pytest.raises(ModuleNotFoundError, match="No module named 'not_installed_anywhere'"):
        estimator("module_of_mine_that_fails:f")


def test_a_module_without_that_name_is_refused() -> None:
    assert (
        refusal("json:grpo")
        == "algorithm.adv_estimator=json:grpo: module 'json' has no 'grpo'. Check the name after the colon."
    )


def test_something_of_a_module_that_cannot_be_called_is_refused() -> None:
    assert "names a str; expected an Estimator or a function" in refusal("json:__name__")
    assert "names a str; expected a PolicyLoss" in refusal("json:__name__", option="actor.policy_loss")


def test_a_misspelt_name_is_refused_with_the_list_and_the_nearest() -> None:
    text = refusal("grop")
    assert text.startswith("algorithm.adv_estimator=grop is unknown; expected one of a_star_po, flash_reinforce, gae,")
    assert text.endswith("or your own as path/to/file.py:function or module:function; did you mean grpo?")
    assert "verl_like." not in text, "names, and no modules"
    assert refusal("zzz").endswith("or module:function."), "nothing is near"
    assert "path/to/file.py:function" in refusal("mine.py"), "a file without a function"


@pytest.mark.parametrize("name", [":fn", ".x:fn"])
def test_a_colon_without_a_file_or_module_before_it_names_the_option(name: str) -> None:
    with pytest.raises(ValueError, match=rf"algorithm.adv_estimator={name} is unknown; expected one of"):
        estimator(name)


# --- their arguments

WITH_ARGUMENTS = (
    HEAD
    + """
def scaled(inputs, config, *, scale, shift=0.0):
    advantages = scale * inputs.rewards + shift
    return Advantages(advantages=advantages, returns=advantages)

def anything(inputs, config, **kwargs):
    return scaled(inputs, config, **kwargs)

scaled_estimator = Estimator(fn=scaled, compares_siblings=True)

def weighted(inputs, config, weight=1.0):
    return TokenLosses(losses=-weight * inputs.log_probs * inputs.advantages, metrics={"weight": weight})

weighted_loss = PolicyLoss(fn=weighted)

def lonely(inputs):
    return inputs
"""
)


def with_kwargs(folder: Path, name: str, kwargs: Mapping[str, Any]) -> AlgorithmConfig:
    return AlgorithmConfig(adv_estimator=f"{file_with(folder, WITH_ARGUMENTS)}:{name}", estimator_kwargs=dict(kwargs))


@pytest.mark.parametrize("name", ["scaled", "anything", "scaled_estimator"])
def test_an_estimator_is_called_with_its_arguments(name: str, tmp_path: Path) -> None:
    config = with_kwargs(tmp_path, name, {"scale": 4.0, "shift": 1.0})
    inputs = AdvantageInputs(
        rewards=torch.tensor([[0.0, 1.5]]), response_mask=torch.ones(1, 2, dtype=torch.bool), group_ids=torch.zeros(1)
    )
    found = estimator_of(config)
    assert found(inputs, config).advantages.tolist() == [[1.0, 7.0]]
    assert found.compares_siblings is (name == "scaled_estimator"), "what else the object says stays"


@pytest.mark.parametrize("name", ["weighted", "weighted_loss"])
def test_a_policy_loss_is_called_with_its_arguments(name: str, tmp_path: Path) -> None:
    config = PolicyLossConfig(
        policy_loss=f"{file_with(tmp_path, WITH_ARGUMENTS)}:{name}", policy_loss_kwargs={"weight": 3.0}
    )
    inputs = LossInputs(
        log_probs=torch.tensor([[-1.0]]),
        old_log_probs=torch.zeros(1, 1),
        advantages=torch.tensor([[2.0]]),
        response_mask=torch.ones(1, 1, dtype=torch.bool),
        totals=BatchTotals(num_tokens=1.0, num_sequences=1.0, max_response_tokens=1),
    )
    found = loss_of(policy_loss_of(config), inputs, config)
    assert found.loss.item() == 6.0 and found.metrics["weight"].item() == 3.0


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        (
            "scaled",
            {"scael": 2.0},
            "algorithm.estimator_kwargs has 'scael', which {option} does not take; its arguments are ['scale', "
            "'shift']; did you mean scale? Correct the name, or add it to the function.",
        ),
        (
            "scaled",
            {"inputs": 2.0, "scale": 1},
            "algorithm.estimator_kwargs has 'inputs', which {option} does not take; its arguments are ['scale', "
            "'shift']. Correct the name, or add it to the function.",
        ),
        (
            "scaled",
            {},
            "{option} needs the argument 'scale', which algorithm.estimator_kwargs does not give. Set "
            "'algorithm.estimator_kwargs={{scale: ...}}', or give it a default in the function.",
        ),
        (
            "lonely",
            {},
            "{option} takes (inputs), but is called with (inputs, config) and then its keyword arguments. "
            "Make these two its first parameters.",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_the_run_starts(
    name: str, kwargs: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = with_kwargs(tmp_path, name, kwargs)
    option = f"algorithm.adv_estimator={config.adv_estimator}"
    assert list(algorithms_exist(Config(algorithm=config))) == [message.format(option=option)]


def test_arguments_for_a_built_in_function_are_refused_with_the_location_of_its_options() -> None:
    config = Config(
        algorithm=AlgorithmConfig(estimator_kwargs={"gamma": 0.9}), actor=ActorConfig(policy_loss_kwargs={"beta": 1})
    )
    found = list(algorithms_exist(config))
    assert found[0] == (
        "algorithm.estimator_kwargs is {'gamma': 0.9}, but algorithm.adv_estimator=grpo is built in and takes no "
        "arguments; its options are those of docs/algorithms.md. Leave algorithm.estimator_kwargs empty and set e.g. "
        "algorithm.NAME=VALUE."
    )
    assert found[1].startswith("actor.policy_loss_kwargs is {'beta': 1}, but actor.policy_loss=ppo is built in")
