"""Goal: what is taken once is given back once, also if a program tries to copy what stands for it.

Method: each object that holds something, copied in each way that Python has.
"""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from reconverge import Agent
from reconverge.shedding import AdaptiveConcurrency, RequestRate, Stack

WAYS: dict[str, Callable[[Any], object]] = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": pickle.dumps}


def slot() -> Any:
    """A slot of a limit."""
    return Agent("memory://").concurrency("render", 2).slot("ada").acquire()


def reservation() -> Any:
    """A charge that is to be settled."""
    return Agent("memory://").limit("tokens", "10/hour").reserve("ada", 5)


def passage() -> Any:
    """An admission of the usual layers."""
    return Stack(RequestRate(Agent("memory://").limit("api", "10/hour")), AdaptiveConcurrency()).enter("ada")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [slot, reservation, passage])
def test_what_is_given_back_once_cannot_be_copied(make: Callable[[], Any], way: str) -> None:
    """The error says to pass on the object itself."""
    held = make()

    with pytest.raises(TypeError, match=f"a {type(held).__name__} cannot be copied .* pass the"):
        WAYS[way](held)


def test_a_slot_is_in_use_until_its_block_ends_whatever_is_copied() -> None:
    """The attempt gives nothing back, and the end of the block gives back one slot."""
    agent = Agent("memory://")
    render = agent.concurrency("render", 2)
    with render.slot("ada") as first, render.slot("ada"):
        with pytest.raises(TypeError):
            copy.copy(first)
        gc.collect()
        inside = agent.stats().limits["render"].in_use, bool(render.slot("ada").acquire())

    assert (2, False) == inside
    assert 0 == agent.stats().limits["render"].in_use
