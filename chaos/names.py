"""The names of every run: our fleets, their limits, the password of each server, and the words of scenarios."""

from __future__ import annotations

from typing import Final

OURS: Final = "ours"
MERGED: Final = "merged"
"""Our own agent with a policy that believes merged totals and nothing else."""
LIMIT_NAME: Final = "login"
CENSUS_NAME: Final = "census"
"""A limit that refuses nobody, to which every admitted cost is charged as well: its total is what all have admitted."""
FLOODED_NAME: Final = "pages"
"""A limit that a stranger floods with distinct keys, where a scenario has one."""
SLOTS_NAME: Final = "render"
"""A limit on what is in progress, where the nodes of a scenario take slots."""
SLOTS_KEY: Final = "images"
"""In a cluster it is of a shard that moves to another master, which is killed afterwards."""
REPORTED: Final = "reported"
"""The hash in which a rival's sums are kept, to be compared with what was admitted."""
SUMS: Final = "sums"
SECRET: Final = "hush-7f3a-not-for-logs"  # noqa: S105  # a password, which must turn up nowhere

SETTINGS_SECRET: Final = "hush-90c1-signs-settings"  # noqa: S105  # with which settings for our fleet are signed

WIRES, NETWORK, PLAIN, LIES = "wires", "network", "plain", "lies"
"""What lies between nodes and server: a Toxiproxy for each, a namespace where packets can be dropped, nothing, or for
each a proxy that can rewrite the server's replies."""
BY_HUB, BY_MACHINE = "hub", "machine"
"""By whose clock windows are judged: by the hub's, as each node knew it, or by the machine's."""
Nodes = tuple[int, ...] | None
"""Their numbers; None stands for all."""


def hash_of(name: str, what: str, shard: int, shards: int) -> str:
    """The key of a rival's hash; in a cluster there is one for each shard."""
    return f"{name}:{what}" if shards == 1 else f"{name}:{{{shard}}}:{what}"
