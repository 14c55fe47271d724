"""Every setting of verl's trees, of OpenRLHF's flags and of EasyR1's example is in exactly one class."""

from __future__ import annotations

import pytest

from benchmarks._easyr1_keys import EASYR1_KEYS
from benchmarks._peer_trees import OPENRLHF_PROGRAMS, VERL_VERSIONS, WHEELS, openrlhf_flags, verl_tree
from verl_like_migrate.tables import table
from verl_like_migrate.translation import translate

needs_wheels = pytest.mark.skipif(not WHEELS.is_dir(), reason="other projects' packages are not there: make peers")


@needs_wheels
@pytest.mark.parametrize("version", VERL_VERSIONS)
def test_every_key_of_verl_is_in_a_class(version: str) -> None:
    known, tree = table("verl"), verl_tree(version)
    assert len(tree) > 200
    assert [key for key in tree if known.entry(known.called(key)[0]) is None] == []


@needs_wheels
@pytest.mark.parametrize("version", VERL_VERSIONS)
def test_verls_own_defaults_ask_for_nothing_that_is_not_here(version: str) -> None:
    # verl's functions would resolve interpolations between keys.
    tree = {key: value for key, value in verl_tree(version).items() if not (isinstance(value, str) and "${" in value)}
    assert translate(table("verl"), tree).problems == []


@needs_wheels
@pytest.mark.parametrize("job", OPENRLHF_PROGRAMS)
def test_every_flag_of_openrlhf_is_in_a_class(job: str) -> None:
    known, flags = table("openrlhf", job), openrlhf_flags(job)
    assert len(flags) > (100 if job == "train" else 70)
    assert [flag for flag in flags if known.entry(flag) is None] == []


def test_every_key_of_easyr1_is_in_a_class() -> None:
    known = table("easyr1")
    assert [key for key in EASYR1_KEYS if known.entry(key) is None] == []
