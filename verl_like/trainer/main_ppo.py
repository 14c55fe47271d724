"""``python -m verl_like.trainer.main_ppo`` takes the settings of ``verl.trainer.main_ppo`` and runs them here."""

from __future__ import annotations

import sys

from verl_like.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", "--from", "verl", *sys.argv[1:]]))
