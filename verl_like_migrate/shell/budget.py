"""Limit what reading one script may cost; a launch script needs a hundredth of it."""

from __future__ import annotations

from dataclasses import dataclass

MOST_STEPS = 100_000
MOST_CHARACTERS = 10_000_000


class Spent(Exception):
    """The budget is used up; reading stops everywhere."""


@dataclass(slots=True)
class Budget:
    """Counts what all shells and readings of a script have used so far."""

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
