"""Values that only a running shell knows."""

# Prefix of the source of an unknown value; text in bash cannot contain this character.
UNKNOWN = "\0"


class UnknownError(Exception):
    """The value is known only when the script runs, or its computation fails there."""
