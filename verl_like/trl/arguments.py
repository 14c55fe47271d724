"""TRL's configurations: objects that hold the arguments that a script sets, and show the defaults of the others."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

from verl_like.config.readers import reader_of_interface
from verl_like.config.suggestion import suggestion


class Arguments:
    """The arguments of a trainer under TRL's names.

    The table of verl_like_migrate lists the names with their defaults, and decides what each does when a trainer is
    made. An argument can be changed like an attribute until then.

    Raises:
        TypeError: unknown names; the message suggests the right one.
    """

    interface: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, output_dir: str | Path | None = None, **arguments: Any) -> None:
        object.__setattr__(self, "_given", {})
        known = reader_of_interface(self.interface).defaults(self.interface)
        object.__setattr__(self, "_defaults", dict(known))
        if unknown := [name for name in arguments if name not in known]:
            raise TypeError("\n".join(self._unknown(name) for name in unknown))
        if output_dir is not None:
            arguments["output_dir"] = output_dir
        self._given.update(arguments)

    def _unknown(self, name: str) -> str:
        return f"{self.name} has no argument {name}{suggestion(name, self._defaults) or '; see docs/trl.md.'}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of protocols such as copy's, before there are arguments
            raise AttributeError(name)
        if name not in self._defaults:
            raise AttributeError(self._unknown(name))
        return self._given.get(name, self._defaults[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(self._unknown(name))
        self._given[name] = value

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self._given.items())})"

    def to_dict(self) -> dict[str, Any]:
        """Return all arguments, defaults included."""
        return {**self._defaults, **self._given}


class SFTConfig(Arguments):
    """TRL's SFTConfig."""

    interface, name = "trl_sft", "SFTConfig"


class DPOConfig(Arguments):
    """TRL's DPOConfig."""

    interface, name = "trl_dpo", "DPOConfig"


class GRPOConfig(Arguments):
    """TRL's GRPOConfig."""

    interface, name = "trl_grpo", "GRPOConfig"


class RewardArguments(Arguments):
    """TRL's RewardConfig."""

    interface, name = "trl_reward", "RewardConfig"


def own_arguments(args: Any, kind: type[Arguments]) -> Arguments:
    """Return the arguments of a trainer; an object of TRL's class gives those that differ from its defaults.

    Raises:
        TypeError: the object is of another class.
    """
    if isinstance(args, kind):
        return args
    names = {each.__name__ for each in type(args).__mro__}
    if kind.name in names and is_dataclass(args):
        return kind(**_set_in(args))
    raise TypeError(f"args is a {type(args).__name__}; expected a {kind.name} of verl_like.trl or of TRL.")


def _set_in(args: Any) -> dict[str, Any]:
    """Return the fields of TRL's object that differ from those of a new one; others are its defaults."""
    needed = {"output_dir": args.output_dir, "use_cpu": args.use_cpu}  # transformers refuses the defaults without a GPU
    plain = vars(type(args)(**needed))
    pairs = {each.name: (vars(args)[each.name], plain[each.name]) for each in fields(args) if each.init}
    found = {**needed, **{name: new for name, (new, old) in pairs.items() if new != old}}
    # TRL's object of GRPO fills both in from the other sizes, for the processes that it knows.
    found.pop("generation_batch_size", None)
    if found.get("steps_per_generation") == args.gradient_accumulation_steps:
        found.pop("steps_per_generation")
    return found


def plain_values(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments that are set, as text, numbers, None, lists and mappings.

    Raises:
        ValueError: an argument is another object.
    """
    from verl_like.from_python import plain

    return {name: plain(value, name) for name, value in arguments._given.items()}
