"""Goal: whatever a node says, what is published and what caps it, the value in force follows from one rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.limiter.enforcement.switches import SWITCHES, Switch, layered_switch, stricter, weaker
from reconverge.published.layered import Layered

NUMBER = st.integers(-3, 3)
LENIENCE = {"on": 0, "shadow": 1, "off": 2}
SWITCH = st.sampled_from(list(SWITCHES.values()))


@given(NUMBER, st.none() | NUMBER)
def test_without_a_published_value_the_nodes_own_is_in_force(own: int, cap: int | None) -> None:
    """A cap does not bound what the node itself says."""
    setting = Layered(own, None, cap)

    assert own == setting.in_force
    assert (False, False) == (setting.capped, setting.overridden)


@given(NUMBER, NUMBER)
def test_a_published_value_comes_before_the_nodes_own(own: int, published: int) -> None:
    """Without a cap it is in force as it is, larger or smaller; zero is a value, too."""
    setting = Layered(own, published)

    assert published == setting.in_force
    assert (False, own != published) == (setting.capped, setting.overridden)


@given(NUMBER, NUMBER)
def test_a_cap_bounds_a_published_value(own: int, cap: int) -> None:
    """At the cap, and below, a published value is in force as it is; above, as much as the cap leaves."""
    below, at, above = (Layered(own, published, cap) for published in (cap - 1, cap, cap + 1))

    assert (cap - 1, cap, cap) == (below.in_force, at.in_force, above.in_force)
    assert (False, False, True) == (below.capped, at.capped, above.capped)


@given(NUMBER, NUMBER)
def test_with_the_nodes_own_value_as_its_cap_a_setting_can_only_be_lowered(own: int, published: int) -> None:
    """The smaller of both is in force; a published value above the node's own does not override it."""
    setting = Layered(own, published, own)

    assert min(own, published) == setting.in_force
    assert (published > own, published < own) == (setting.capped, setting.overridden)


@given(st.lists(st.tuples(st.sampled_from(["own", "published"]), NUMBER) | st.just(("published", None)), min_size=1))
def test_each_layer_is_as_it_was_assigned_last(assigned: list[tuple[str, int | None]]) -> None:
    """Neither layer changes the other; when nothing is published any more, the latest own value is in force."""
    setting: Layered[int | None] = Layered(0)
    latest: dict[str, int | None] = {"own": 0, "published": None}
    for layer, value in assigned:
        setattr(setting, layer, value)
        latest[layer] = value
        expected = latest["own"] if latest["published"] is None else latest["published"]

        assert expected == setting.in_force
    setting.published = None

    assert latest["own"] == setting.in_force


@given(SWITCH, SWITCH | st.none(), SWITCH, SWITCH | st.none(), st.booleans())
def test_of_two_switches_the_one_that_refuses_less_is_in_force(
    limits: Switch, published: Switch | None, agents: Switch, fleets: Switch | None, has_cap: bool
) -> None:
    """Layer by layer; of a limit with a cap, a published switch has it refuse more at most."""
    own = max(LENIENCE[limits], LENIENCE[agents])
    wanted = max(LENIENCE[published or limits], LENIENCE[fleets or agents])
    expected = min(own, wanted) if has_cap else wanted
    switch = layered_switch(Layered[Switch](limits, published), Layered[Switch](agents, fleets), has_cap=has_cap)

    assert expected == LENIENCE[switch.in_force]
    assert (expected != wanted) == switch.capped


@pytest.mark.parametrize(("stricter_one", "weaker_one"), [("on", "shadow"), ("shadow", "off"), ("on", "off")])
def test_a_switch_is_stricter_that_refuses_more(stricter_one: Switch, weaker_one: Switch) -> None:
    """On refuses more than shadow, and shadow more than off."""
    assert stricter_one == stricter(stricter_one, weaker_one) == stricter(weaker_one, stricter_one)
    assert weaker_one == weaker(stricter_one, weaker_one) == weaker(weaker_one, stricter_one)
