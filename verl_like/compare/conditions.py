"""The conditions of several runs side by side: options, versions of libraries, machines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from verl_like.config.render import differing
from verl_like.report.groups import NAME_OPTIONS
from verl_like.report.options_shown import shown_options
from verl_like.report.run_files import RunFiles

ABSENT, UNKNOWN = "(no such option)", "unknown"
MAX_LOG_BYTES = 2**12  # the line of a log that names the host is near its start
_HOST = re.compile(r" is process \d+ on (\S+)$", re.MULTILINE)

Rows = dict[str, list[str]]  # name -> the value of each run


def option_rows(runs: Sequence[RunFiles]) -> tuple[Rows, list[str]]:
    """Return the options that differ, except names and folders of the runs, and notes on how they were compared."""
    configs = [run.config for run in runs]
    readable = [config for config in configs if config is not None]
    if len(readable) == len(runs):
        return _without_names(differing(readable)), []
    unread = [run.name for run, config in zip(runs, configs, strict=True) if config is None]
    recorded = [{entry["name"]: entry["value"] for entry in shown_options(run.settings, run.origins)} for run in runs]
    names = dict.fromkeys(name for values in recorded for name in values)
    rows = {name: [values.get(name, ABSENT) for values in recorded] for name in names}
    note = f"This version cannot compose the configuration of {', '.join(unread)}, so options are compared as recorded."
    return _without_names({name: values for name, values in rows.items() if len(set(values)) > 1}), [note]


def _without_names(rows: Rows) -> Rows:
    return {name: values for name, values in rows.items() if name not in NAME_OPTIONS}


def version_rows(runs: Sequence[RunFiles]) -> Rows:
    """Return the versions, model, commit and machine of each run; a run that has not ended has recorded few of them."""
    found = [_conditions(run) for run in runs]
    names = dict.fromkeys(name for values in found for name in values)
    return {name: [values.get(name, UNKNOWN) for values in found] for name in names}


def _conditions(run: RunFiles) -> Mapping[str, str]:
    return {
        **run.versions(),
        **run.environment,
        **_processor(run.folder / "matmul.json"),
        **({"hosts": hosts} if (hosts := ", ".join(sorted(_hosts(run)))) else {}),
    }


def _processor(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8")).get("processor")
    except (OSError, ValueError, AttributeError):
        return {}
    return {"processor": str(found)} if found else {}


def _hosts(run: RunFiles) -> set[str]:
    """Return the hosts of the processes of the newest start, by their logs."""
    found: set[str] = set()
    for path in run.newest_logs.glob("*.log") if run.newest_logs is not None else ():
        with path.open("rb") as file:
            found |= set(_HOST.findall(file.read(MAX_LOG_BYTES).decode("utf-8", "replace")))
    return found
