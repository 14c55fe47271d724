"""What only a running shell knows."""

# Stands before the source of what is not known, wherever that travels; bash has no text with this sign in it.
UNKNOWN = "\0"


class UnknownError(Exception):
    """What was asked for shows only when the script runs, or is wrong there."""
