"""Names of the projects whose commands and files can be read."""

PEERS = ("verl", "easyr1", "openrlhf")
KNOWN = ("trl", *PEERS)  # TRL's names are known only for hints
