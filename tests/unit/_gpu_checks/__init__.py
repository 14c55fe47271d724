"""Checks for the tests of ``benchmarks.gpu_check``: each ends in another way."""
