"""Make the games and the model: ``python -m recipes.guess_number.prepare --out DIR``.

A game has a name and a secret number from 1 to 7. Three guesses always suffice, because each halves what is left:
1 + 2 + 4 = 7. The names of the held-out games do not occur in training. In the supervised rows most guesses are random,
whatever the hints say, and a fifth halve what is left. So the resulting policy knows the game and plays badly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recipes.small_chat import prepare, write_small_model

NUMBERS = range(1, 8)
MAX_GUESSES = 3
NUM_NAMES, NUM_HELD_OUT = 100, 20  # names of games; each is played once for every secret
SFT_ROWS_PER_GAME = 32
HALVING_FRAC = 0.2  # of the supervised guesses

Game = tuple[int, int]  # name, secret


def split_games(seed: int) -> tuple[list[Game], list[Game]]:
    """Return the training games and the held-out games, which have no name in common."""
    names = np.random.default_rng(seed).permutation(NUM_NAMES).tolist()
    return _games(names[NUM_HELD_OUT:]), _games(names[:NUM_HELD_OUT])


def _games(names: list[int]) -> list[Game]:
    return [(name, secret) for name in sorted(names) for secret in NUMBERS]


def prompt(name: int) -> str:
    return f"game {name:02d}"


def game_rows(games: list[Game]) -> dict[str, list[Any]]:
    """Return the rows of these games."""
    return {"prompt": [prompt(name) for name, _ in games], "secret": [secret for _, secret in games]}


def sft_rows(games: list[Game], seed: int) -> dict[str, list[Any]]:
    """Return chats, and a next guess for each that rarely follows from the hints."""
    rng = np.random.default_rng([seed, 1])
    chats, guesses = [], []
    for name, secret in games * SFT_ROWS_PER_GAME:
        chat, left = [{"role": "user", "content": prompt(name)}], list(NUMBERS)
        for _ in range(rng.integers(MAX_GUESSES)):
            if (guess := _guess(left, rng)) == secret:
                break
            hint = "higher" if guess < secret else "lower"
            left = [number for number in left if (number > guess) == (hint == "higher") and number != guess]
            chat += [{"role": "assistant", "content": str(guess)}, {"role": "user", "content": hint}]
        chats.append(chat)
        guesses.append(str(_guess(left, rng)))
    return {"prompt": chats, "answer": guesses}


def _guess(left: list[int], rng: np.random.Generator) -> int:
    """Return the middle of the numbers that are left, or any number."""
    return left[len(left) // 2] if rng.random() < HALVING_FRAC else int(rng.choice(NUMBERS))


def write_data(out: Path, seed: int) -> dict[str, int]:
    """Write train.parquet, val.parquet and sft.parquet below ``out``; return the number of rows of each."""
    train, validation = split_games(seed)
    tables = {"train": game_rows(train), "val": game_rows(validation), "sft": sft_rows(train, seed)}
    out.mkdir(parents=True, exist_ok=True)
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), out / f"{name}.parquet")
    return {name: len(columns["prompt"]) for name, columns in tables.items()}


def write_model(out: Path, seed: int) -> int:
    """Write the model and its tokenizer to ``out``; return the number of parameters."""
    return write_small_model(out, [*"0123456789", "game ", "higher", "lower"], seed)


def main(argv: list[str] | None = None) -> None:
    prepare(argv, write_data, write_model)


if __name__ == "__main__":
    main()
