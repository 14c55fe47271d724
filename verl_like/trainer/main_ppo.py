"""``python -m verl_like.trainer.main_ppo`` takes the settings of ``verl.trainer.main_ppo`` and runs them here."""

from __future__ import annotations

import sys

from verl_like.__main__ import main

if __name__ == "__main__":
    sys.argv[1:1] = ["train", "--from", "verl"]  # a restart reads sys.orig_argv, which stays
    sys.exit(main())
