"""How much one script may take to read; a script that launches a run takes a hundredth of it."""

from __future__ import annotations

from dataclasses import dataclass

MOST_STEPS = 100_000
MOST_CHARACTERS = 10_000_000


class Spent(Exception):
    """The budget is used up: no part of the script is read any further, whoever asked for it."""


@dataclass(slots=True)
class Budget:
    """What is spent on a script so far, by all of its shells and readings together."""

    steps: int = 0
    characters: int = 0

    def step(self, line: int) -> None:
        """Count a command or an operation of a calculation.

        Raises:
            Spent: there were too many.
        """
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Spent(
                f"line {line}: found more than {MOST_STEPS} commands and calculations to go through, expected a script "
                "that launches a run. Shorten its loops."
            )

    def text(self, characters: int) -> None:
        """Count characters that are made.

        Raises:
            Spent: there were too many.
        """
        self.characters += characters
        if self.characters > MOST_CHARACTERS:
            raise Spent(
                f"found more than {MOST_CHARACTERS:,} characters that the script puts together, expected a script that "
                "launches a run. Shorten its texts and loops."
            )
