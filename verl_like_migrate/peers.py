"""The projects whose commands and files are read."""

PEERS = ("verl", "easyr1", "openrlhf")
KNOWN = ("trl", *PEERS)  # whose names are known besides
