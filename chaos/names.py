"""The names of every run: our fleets, their limits, the password of each server, and the words of scenarios."""

from __future__ import annotations

from typing import Final

OURS: Final = "ours"
MERGED: Final = "merged"
"""Our own agent with a policy that decides by merged totals alone."""
LIMIT_NAME: Final = "login"
CENSUS_NAME: Final = "census"
"""A limit that refuses nothing, to which every admitted cost is charged as well: its total is the sum of all
admissions."""
FLOODED_NAME: Final = "pages"
"""A limit that a stranger floods with distinct keys, in scenarios with one."""
SLOTS_NAME: Final = "render"
"""A limit on work in progress, in scenarios whose nodes take slots."""
SLOTS_KEY: Final = "images"
"""A key whose shard, in a cluster, moves to another master, which is killed afterwards."""
REPORTED: Final = "reported"
"""The hash with a rival's sums, which are compared with the admitted cost."""
SUMS: Final = "sums"
SECRET: Final = "hush-7f3a-not-for-logs"  # noqa: S105  # a password, which must not appear anywhere

SETTINGS_SECRET: Final = "hush-90c1-signs-settings"  # noqa: S105  # the secret with which settings for our fleet are signed

WIRES, NETWORK, PLAIN, LIES = "wires", "network", "plain", "lies"
"""The connections between nodes and server: a Toxiproxy for each, a namespace where packets can be dropped, none
between, or for each node a proxy that can rewrite the server's replies."""
BY_HUB, BY_MACHINE = "hub", "machine"
"""The clock by which windows are judged: the hub's, as each node knew it, or the machine's."""
Nodes = tuple[int, ...] | None
"""The numbers of nodes; None stands for all."""


def hash_of(name: str, what: str, shard: int, shards: int) -> str:
    """Returns the key of a rival's hash; in a cluster each shard has one."""
    return f"{name}:{what}" if shards == 1 else f"{name}:{{{shard}}}:{what}"
