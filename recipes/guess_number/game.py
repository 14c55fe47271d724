"""The game: guess a number, and learn after each guess whether it is higher or lower."""

from __future__ import annotations


class GuessNumber:
    """An environment with ``reset`` and ``step``; the columns of a row are the arguments of ``reset``."""

    def reset(self, secret: int) -> None:
        """Begin a game; the first chat is the row's prompt."""
        self._secret = secret

    def step(self, guess: str) -> tuple[str, float, bool]:
        """Return the hint, the reward and whether the game is over."""
        if not guess.isdecimal():
            return "", 0.0, True
        number = int(guess)
        if number == self._secret:
            return "", 1.0, True
        return ("higher" if number < self._secret else "lower"), 0.0, False
