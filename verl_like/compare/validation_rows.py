"""The scores of each prompt in the last validation of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

_SCORES = re.compile(r"val_step_(\d+)\.scores\.parquet")
Scores = Mapping[tuple[str, str], float]  # data source and uid of a prompt -> mean score of its responses


def last_scores(folder: Path) -> Scores:
    """Return each prompt's mean score in the newest file of scores; responses without one are left out.

    Raises:
        ValueError: there is no file, or it cannot be read.
    """
    found = {int(match[1]): path for path in (folder / "samples").glob("*") if (match := _SCORES.fullmatch(path.name))}
    if not found:
        raise ValueError(f"{folder.name} has no samples/val_step_N.scores.parquet")
    newest = found[max(found)]
    try:
        return _means(newest)
    except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are ValueError
        raise ValueError(f"{newest} cannot be read ({type(error).__name__})") from error


def _means(path: Path) -> Scores:
    import pyarrow.parquet as pq  # takes a tenth of a second, and not every comparison needs it

    columns = pq.read_table(path, columns=["data_source", "uid", "score"]).to_pydict()
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for source, uid, score in zip(columns["data_source"], columns["uid"], columns["score"], strict=True):
        if score is not None and math.isfinite(score):
            total, count = sums.get((source, uid), (0.0, 0))
            sums[source, uid] = total + score, count + 1
    return {prompt: total / count for prompt, (total, count) in sums.items()}
