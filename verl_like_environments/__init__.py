"""Runs users' environments, tools and agents, in any Python from 3.10 on. Imports only the standard library.

The training process starts it in the interpreter that ``environment.python`` names, and exchanges frames of JSON with
it (:mod:`verl_like_environments.frames`). Nothing else has to be installed there.
"""
