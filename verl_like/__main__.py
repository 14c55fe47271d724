"""``python -m verl_like`` is ``verl-like``."""

from verl_like.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
