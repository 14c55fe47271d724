"""Our algorithms and data, compared with those of other projects, which ``make peers`` installs."""

from tests._peer_modules import add_peers_to_path

add_peers_to_path()  # the tests import them while they are collected
