"""Forms of reward functions: the arguments that they take. A form is recognised once, by the parameter names.

A function written for verl, EasyR1, OpenRLHF or TRL runs unchanged; :data:`FORMS` lists the forms.
"""

from __future__ import annotations

import inspect
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from types import SimpleNamespace
from typing import Any

from verl_like.reward.scorer_messages import Sample

RewardFunction = Callable[..., Any]
Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """One way of calling a reward function.

    Args:
        signature: for messages and docs.
        marks: parameter names; any one of them identifies the form.
        is_batch: whether it takes many samples at once and returns a list.
        arguments: every argument that a function of this form may take, made from the samples (one unless
            ``is_batch``).
        is_positional: whether the one argument is passed by position, whatever its name.
    """

    signature: str
    marks: frozenset[str]
    is_batch: bool
    arguments: Callable[[Sequence[Sample]], Arguments]
    is_positional: bool = False


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A reward function with its form and the arguments that the configuration adds."""

    function: RewardFunction
    form: Form
    kwargs: Mapping[str, Any]
    wanted: frozenset[str] | None  # parameter names; None if the function takes any

    def __call__(self, samples: Sequence[Sample]) -> Any:
        """Call the function: return one value, or those of all samples for a batch form.

        The result is a coroutine if the function is async.
        """
        arguments = self.form.arguments(samples)
        if self.form.is_positional:
            return self.function(*arguments.values(), **self.kwargs)
        if self.wanted is not None:
            arguments = {name: arguments[name] for name in self.wanted & arguments.keys()}
        arguments.update(self.kwargs)
        return self.function(**arguments)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(inspect.unwrap(self.function)) or inspect.iscoroutinefunction(
            type(self.function).__call__
        )


def _of_sample(samples: Sequence[Sample]) -> Arguments:
    [s] = samples
    return {
        "data_source": s.data_source,
        "solution_str": s.response,
        "ground_truth": s.ground_truth,
        "extra_info": _extra_info(s),
        "prompt_str": s.prompt,
        "messages": s.messages,
        "response_length": len(s.response_ids),
    }


def _of_samples(samples: Sequence[Sample]) -> Arguments:
    return {
        "data_sources": [s.data_source for s in samples],
        "solution_strs": [s.response for s in samples],
        "ground_truths": [s.ground_truth for s in samples],
        "extra_infos": [_extra_info(s) for s in samples],
    }


def _extra_info(s: Sample) -> Arguments:
    """Return the row's extra_info with the entries that verl's reward managers add.

    A prompt and its response are two turns, and no tool has scored any. Turns are messages, as verl counts them.
    """
    num_turns = 2 if s.episode is None else 1 + len(s.episode["completion"])
    return {"num_turns": num_turns, "rollout_reward_scores": {}, **s.extra_info}


def _reward_input(s: Sample) -> Arguments:
    return {
        "response": s.response,
        "response_length": len(s.response_ids),
        "ground_truth": s.ground_truth,
        "data_source": s.data_source,
        "prompt": s.prompt,
        "extra_info": s.extra_info,
    }


def _openrlhf(samples: Sequence[Sample]) -> Arguments:
    return {
        "queries": [s.prompt + s.response for s in samples],
        "prompts": [s.prompt for s in samples],
        "labels": [s.ground_truth for s in samples],
    }


def _trl(samples: Sequence[Sample]) -> Arguments:
    """Return prompts and completions as chat lists if the row's prompt is one, and every column as a list."""
    columns = [
        {"data_source": s.data_source, "ground_truth": s.ground_truth, "extra_info": s.extra_info, **s.columns}
        for s in samples
    ]
    names = dict.fromkeys(name for row in columns for name in row)
    return {
        **{name: [row.get(name) for row in columns] for name in names},
        "prompts": [s.messages for s in samples],
        "completions": [_completion(s) for s in samples],
        "completion_ids": [s.response_ids.tolist() for s in samples],
        **_environments(samples),
    }


def _environments(samples: Sequence[Sample]) -> Arguments:
    """Return what is left of the environments, if samples are episodes. The objects have ended with their processes."""
    if all(s.episode is None for s in samples):
        return {}
    return {"environments": [EnvironmentAttributes(**(s.episode or {}).get("environment", {})) for s in samples]}


class EnvironmentAttributes(SimpleNamespace):
    """The attributes that an environment's object had when its episode ended."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"found no attribute {name!r} of the environment; a reward function gets public attributes that JSON can "
            f"hold ({', '.join(sorted(vars(self))) or 'here none'}), and no methods. Assign the value to one."
        )


def _completion(s: Sample) -> Any:
    """Return a response as TRL passes it: text if the prompt is text, else a chat."""
    if s.episode is not None and s.episode["completion"]:  # empty if it failed before its first turn
        return s.episode["completion"]
    return s.response if isinstance(s.messages, str) else [{"role": "assistant", "content": s.response}]


FORMS: dict[str, Form] = {
    "verl": Form(
        "compute_score(data_source, solution_str, ground_truth, extra_info)",
        frozenset({"solution_str"}),
        False,
        _of_sample,
    ),
    "verl, batch": Form(
        "compute_score(data_sources, solution_strs, ground_truths, extra_infos)",
        frozenset({"solution_strs"}),
        True,
        _of_samples,
    ),
    "EasyR1, sequential": Form(
        "compute_score(reward_input)",
        frozenset({"reward_input"}),
        False,
        lambda samples: {"reward_input": _reward_input(samples[0])},
        is_positional=True,
    ),
    "EasyR1, batch": Form(
        "compute_score(reward_inputs)",
        frozenset({"reward_inputs"}),
        True,
        lambda samples: {"reward_inputs": [_reward_input(s) for s in samples]},
        is_positional=True,
    ),
    "OpenRLHF": Form("reward_func(queries, prompts, labels)", frozenset({"queries"}), True, _openrlhf),
    "TRL": Form(
        "reward_func(prompts, completions, **columns)",
        frozenset({"completions", "completion_ids", "environments"}),
        True,
        _trl,
    ),
}
_VARIABLE = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
_EASYR1_TYPES = {"sequential": "EasyR1, sequential", "batch": "EasyR1, batch"}


def bind(function: RewardFunction, kwargs: Mapping[str, Any], *, name: str) -> BoundFunction:
    """Recognise the form of ``function``.

    Args:
        kwargs: arguments that the configuration adds.
        name: of the function, for messages.

    Raises:
        ValueError: the parameters match no known form, one is not filled, or ``kwargs`` has one that does not exist.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # some C functions have no signature; the first call will show whether the arguments fit
        return BoundFunction(function, FORMS["verl"], kwargs, None)
    parameters = signature.parameters.values()
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters if p.kind not in _VARIABLE}
    form = _form(function, named - set(kwargs), takes_any=takes_any)
    if form is None:
        forms = "\n".join(f"  {kind}: {each.signature}" for kind, each in FORMS.items())
        raise ValueError(
            f"reward function {name} has the signature {signature}, which is none of the known forms:\n{forms}\n"
            "Name its parameters like one of these."
        )
    unknown = sorted(set(kwargs) - named) if not takes_any else []
    if unknown:
        raise ValueError(
            f"reward function {name} has the signature {signature}, which takes no {', '.join(unknown)}. "
            f"Correct the arguments that the configuration passes to it ({sorted(kwargs)}), or the function."
        )
    _refuse_unfilled(signature, form, kwargs, name)
    return BoundFunction(function, form, kwargs, None if takes_any else frozenset(named))


def _blank() -> Sample:
    """Return a sample that shows which arguments a form may take."""
    return Sample(
        response="",
        prompt="",
        messages="",
        data_source="",
        ground_truth="",
        extra_info={},
        columns={},
        response_ids=array("i"),
    )


def _form(function: RewardFunction, named: set[str], *, takes_any: bool) -> Form | None:
    # In EasyR1, the module declares which of the two forms a function has.
    declared = function.__globals__.get("REWARD_TYPE") if inspect.isfunction(function) else None
    if declared in _EASYR1_TYPES and not named & FORMS["verl"].marks:
        return FORMS[_EASYR1_TYPES[declared]]
    for form in FORMS.values():
        if form.marks & named:
            return form
    if not takes_any:
        return None
    # verl passes everything by name, so that a function may absorb arguments that it does not use in **kwargs.
    is_batch = bool(named & FORMS["verl, batch"].arguments([_blank()]).keys())
    return FORMS["verl, batch" if is_batch else "verl"]


def _refuse_unfilled(signature: inspect.Signature, form: Form, kwargs: Mapping[str, Any], name: str) -> None:
    """Raise ValueError for a parameter that neither the form nor the configuration fills.

    TRL's columns are excepted: they are known only with the first row.
    """
    if form is FORMS["TRL"] or form.is_positional:
        return
    arguments = form.arguments([_blank()])
    filled = {*arguments, *kwargs}
    unfilled = [
        p.name
        for p in signature.parameters.values()
        if p.default is Parameter.empty and p.kind not in _VARIABLE and p.name not in filled
    ]
    if unfilled:
        raise ValueError(
            f"reward function {name} has the signature {signature}, but nothing fills {', '.join(unfilled)}; a "
            f"function of this form may take {', '.join(arguments)}. Give them defaults, or pass them "
            "as kwargs."
        )
