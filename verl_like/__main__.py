"""Entry point of ``python -m verl_like``; listens for ``kill -USR1`` before the slow imports."""

from __future__ import annotations

from verl_like.telemetry import stacks

INTERRUPTED = 130


def main() -> int:
    """Run the command; return the exit status."""
    stacks.listen()
    try:
        from verl_like.cli import main as command
    except KeyboardInterrupt:
        return INTERRUPTED

    return command()


if __name__ == "__main__":
    raise SystemExit(main())
