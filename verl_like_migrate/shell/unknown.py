"""Values that only a running shell knows."""

# Stands before the source of what is not known, wherever that travels; bash has no text with this sign in it.
UNKNOWN = "\0"


class UnknownError(Exception):
    """A value that is known only when the script runs, or an error there."""
