"""The matrix as a page that people read."""

from __future__ import annotations

from collections.abc import Sequence

from tests.chaos.play import Outcome

HEAD = """# The fault matrix

Made by `make chaos ARGS="--page docs/fault_matrix.md"`. Each row is a run of PPO on the real stack (two workers on
CPU, `trainer.stall_after_s=4`) with one fault. The words under *said* must be in the run's own output. *Numbers equal*:
once the run has gone on, or was continued, its metrics, samples and checkpoints were those of a run that nobody
disturbed. Outcomes: *absorbed*, it goes on as if nothing had been; *restarted*, it builds its processes anew
(`trainer.max_restarts=1`); *aborted*, it ends with an error; *ended in order*, it saves and ends with status 0; *gone*,
the driver was killed, and the same command continues.
"""


def markdown(outcomes: Sequence[Outcome]) -> str:
    """``docs/fault_matrix.md``: one row for each case."""
    lines = [
        HEAD,
        "| process | stage | fault | outcome | said | seconds to the verdict | numbers equal | left behind | held |",
        "|---|---|---|---|---|---:|---|---|---|",
    ]
    for outcome in outcomes:
        case = outcome.case
        verdict = "" if outcome.verdict_s is None else f"{outcome.verdict_s:.1f}"
        equal = {None: "", True: "yes", False: "no"}[outcome.is_equal]
        left = outcome.num_left + outcome.num_leaked
        cells = (
            case.process,
            case.stage or "any",
            case.fault,
            case.expected,
            " … ".join(f"`{name}`" for name in case.names),
            verdict,
            equal,
            str(left) if left else "nothing",
            "no" if outcome.problems else "yes",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
