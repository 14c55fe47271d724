"""Requirements that set-up and runs place on a machine.

This package imports only Python's standard library: `make setup` runs it before anything is installed.
"""
