"""What a machine must have for set-up and runs.

Only Python's standard library is imported here: `make setup` asks before anything is installed.
"""
