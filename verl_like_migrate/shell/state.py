"""The state of a shell: variables, arrays, arguments; and notes for the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from verl_like_migrate.shell.arithmetic import whole_number
from verl_like_migrate.shell.budget import Budget

_LONGEST_TEXT = 1_000_000


@dataclass(slots=True)
class State:
    """Variables and arrays by name; a name is in one of the two.

    Args:
        substitute: returns the output of ``$(source)`` on a line; None if it is unknown without running it.
        path: the script's path, ``$0``; empty if unknown.
    """

    variables: dict[str, str]
    arguments: list[str]
    substitute: Callable[[State, str, int], str | None]
    path: str = ""
    inside: list[list[str]] = field(default_factory=list)  # commands in substitutions with unknown output
    arrays: dict[str, dict[str, str]] = field(default_factory=dict)  # the keys of most arrays are numbers
    keyed: set[str] = field(default_factory=set)  # names of arrays whose keys are words
    scopes: list[dict[str, tuple[str | None, dict[str, str] | None, bool]]] = field(default_factory=list)
    status: str = "0"
    notes: dict[str, None] = field(default_factory=dict)  # an ordered set
    budget: Budget = field(default_factory=Budget)

    def note(self, line: int, sentence: str, *, once: bool = False) -> None:
        """Add a note for the user, unless it exists on this line, or with ``once`` on any line."""
        if not once or not any(note.endswith(f": {sentence}") for note in self.notes):
            note = f"line {line}: {sentence}"
            self.budget.text(len(note) if note not in self.notes else 0)
            self.notes[note] = None

    def copy(self) -> State:
        """Copy the state for a subshell, which keeps its own variables and shares the notes."""
        return replace(
            self,
            variables=dict(self.variables),
            arguments=list(self.arguments),
            arrays={name: dict(elements) for name, elements in self.arrays.items()},
            keyed=set(self.keyed),
            scopes=[
                {
                    name: (text, elements and dict(elements), is_keyed)
                    for name, (text, elements, is_keyed) in kept.items()
                }
                for kept in self.scopes
            ],
        )

    def restore(self, earlier: State) -> None:
        """Restore the state of a copy, except notes."""
        self.variables, self.arguments, self.arrays = earlier.variables, earlier.arguments, earlier.arrays
        self.keyed, self.scopes, self.status = earlier.keyed, earlier.scopes, earlier.status

    def is_set(self, name: str) -> bool:
        """Return whether a variable, an array or an argument has that name."""
        return name in self.variables or name in self.arrays or self.element(name, "0") is not None

    def element(self, name: str, key: str) -> str | None:
        """Return an element of an array; a plain variable is element 0."""
        if name == "0":
            return self.path or None
        if name.isdigit():
            index = whole_number(name) or 0
            return self.arguments[index - 1] if 0 < index <= len(self.arguments) else None
        if name in self.arrays:
            number = whole_number(key) or 0
            if number < 0 and name not in self.keyed:
                key = str(max(map(int, self.arrays[name]), default=0) + 1 + number)
            return self.arrays[name].get(key)
        return self.variables.get(name) if key == "0" else None

    def elements(self, name: str) -> dict[str, str]:
        """Return all elements by key, in the array's sequence."""
        if name in "@*":
            return {str(number): text for number, text in enumerate(self.arguments, 1)}
        if name in self.keyed:
            return self.arrays[name]
        if name in self.arrays:
            return dict(sorted(self.arrays[name].items(), key=lambda item: int(item[0])))
        return {"0": self.variables[name]} if name in self.variables else {}

    def put(self, name: str, text: str, key: str | None = None) -> None:
        """Set a variable, or an element of an array.

        Raises:
            ValueError: the text is longer than any in a launch script.
        """
        if len(text) > _LONGEST_TEXT:
            raise ValueError(
                f"found more than {_LONGEST_TEXT:,} characters in {name}, expected a script that launches a run."
            )
        self.budget.text(len(text))
        if key is not None and name not in self.arrays:
            self.arrays[name] = {"0": self.variables.pop(name)} if name in self.variables else {}
        if name in self.arrays:
            self.arrays[name]["0" if key is None else key] = text
        else:
            self.variables[name] = text

    def put_array(self, name: str, elements: Mapping[str, str]) -> None:
        """Set an array as a whole."""
        self.budget.text(sum(len(text) + 10 for text in elements.values()))
        self.variables.pop(name, None)
        self.arrays[name] = dict(elements)

    def forget(self, name: str) -> None:
        """Unset a variable or an array."""
        self.variables.pop(name, None)
        self.arrays.pop(name, None)
        self.keyed.discard(name)

    def make_local(self, name: str) -> None:
        """Save a name's value, to be restored at the end of the innermost scope, if there is one."""
        if self.scopes:
            kept = (self.variables.get(name), self.arrays.get(name), name in self.keyed)
            self.scopes[-1].setdefault(name, kept)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Open a scope; at its end, names made local in it get their earlier values back."""
        depth = len(self.scopes)
        self.scopes.append({})
        try:
            yield
        finally:
            for name, (text, elements, is_keyed) in self.scopes[depth].items():
                self.forget(name)
                self.variables |= {} if text is None else {name: text}
                self.arrays |= {} if elements is None else {name: elements}
                self.keyed |= {name} if is_keyed else set()
            del self.scopes[depth:]
