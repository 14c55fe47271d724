"""Limits on the cost of reading one script; a launch script needs about a hundredth."""

from __future__ import annotations

from dataclasses import dataclass

MOST_STEPS = 100_000
MOST_CHARACTERS = 10_000_000


class Spent(Exception):
    """The budget is used up; reading stops everywhere."""


@dataclass(slots=True)
class Budget:
    """Counts steps and characters over all shells and readings of a script."""

    steps: int = 0
    characters: int = 0

    def step(self, line: int) -> None:
        """Count a command or an arithmetic operation.

        Raises:
            Spent: there were too many.
        """
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Spent(
                f"line {line}: found more than {MOST_STEPS} commands and calculations, expected a script "
                "that launches a run. Shorten its loops."
            )

    def text(self, characters: int) -> None:
        """Count produced characters.

        Raises:
            Spent: there were too many.
        """
        self.characters += characters
        if self.characters > MOST_CHARACTERS:
            raise Spent(
                f"found more than {MOST_CHARACTERS:,} characters built by the script, expected a script that "
                "launches a run. Shorten its texts and loops."
            )
