"""The switches ("on", "shadow", "off") of limits and agents, and the rules for which of several is in force."""

from __future__ import annotations

import os
from typing import Final, Literal, TypeAlias

from reconverge.errors import InvalidSetting
from reconverge.published.layered import Layered

Switch: TypeAlias = Literal["on", "shadow", "off"]
ON: Final = "on"
SHADOW: Final = "shadow"
OFF: Final = "off"
VARIABLE: Final = "RECONVERGE_SWITCH"
"""The environment variable that sets the switch of agents."""
SWITCHES: Final[dict[str, Switch]] = {"on": ON, "shadow": SHADOW, "off": OFF}
"""All switches by name, from the one that refuses most to the one that refuses least."""


def checked_switch(switch: object) -> Switch:
    """Returns `switch` if it is "on", "off" or "shadow". Raises InvalidSetting."""
    if not isinstance(switch, str) or switch not in SWITCHES:
        raise InvalidSetting("switch", switch, f"must be {', '.join(map(repr, SWITCHES))}")
    return SWITCHES[switch]


def switch_as_said(switch: object) -> Switch:
    """Returns `switch`; if it is None, the environment's switch, or else "on". Raises InvalidSetting."""
    if switch is not None:
        return checked_switch(switch)
    said = os.environ.get(VARIABLE)
    if not said:
        return ON
    if said not in SWITCHES:
        raise InvalidSetting(VARIABLE, said, f"must be {', '.join(map(repr, SWITCHES))}")
    return SWITCHES[said]


def weaker(one: Switch, other: Switch) -> Switch:
    """Returns the one of two switches that refuses less."""
    return max(one, other, key=list(SWITCHES).index)


def stricter(one: Switch, other: Switch) -> Switch:
    """Returns the one of two switches that refuses more."""
    return min(one, other, key=list(SWITCHES).index)


def layered_switch(limits: Layered[Switch], agents: Layered[Switch], *, has_cap: bool) -> Layered[Switch]:
    """Combines the switches of a limit and of its agent, each with its own and its published value, into one.

    Of limit and agent, the switch that refuses less counts. If the limit has a cap, a published switch that refuses
    less than the node's own does not count, because it would admit more than the cap.
    """
    own, published = weaker(limits.own, agents.own), weaker(limits.in_force, agents.in_force)
    return Layered(own, published, own if has_cap else None, leave=stricter)
