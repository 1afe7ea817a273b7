"""All contestants besides ours, by name."""

from __future__ import annotations

from typing import Final

from chaos.rivals.asking import Insistent, Oblivious, Trusting
from chaos.rivals.fragile import Believing, KeyPerKey, LazyUnderLock, Mortal, PlainLock, Recalling, Reserving, Uncapped
from chaos.rivals.further import CatchingUpInLoop, FirstLoop, OneGulp, Orphaned, Unbounded, Unlocked
from chaos.rivals.on_broker import DroppingOnBroker, Gullible, NamesakeOnBroker, RequeueingOnBroker
from chaos.rivals.slots import Reconnecting
from chaos.rivals.usual import (
    Asking,
    CatchingUp,
    Counting,
    Dropping,
    Eager,
    Expiring,
    Locking,
    Mute,
    Namesake,
    Patient,
    Requeueing,
    Retrying,
)

RIVALS: Final[dict[str, type[Counting]]] = {
    "dropping": Dropping,
    "requeueing": Requeueing,
    "retrying": Retrying,
    "patient": Patient,
    "expiring": Expiring,
    "mute": Mute,
    "namesake": Namesake,
    "catching-up": CatchingUp,
    "catching-up-in-loop": CatchingUpInLoop,
    "eager": Eager,
    "locking": Locking,
    "asking": Asking,
    "orphaned": Orphaned,
    "unlocked": Unlocked,
    "unbounded": Unbounded,
    "one-gulp": OneGulp,
    "first-loop": FirstLoop,
    "gullible": Gullible,
    "uncapped": Uncapped,
    "key-per-key": KeyPerKey,
    "believing": Believing,
    "mortal": Mortal,
    "lazy-under-lock": LazyUnderLock,
    "plain-lock": PlainLock,
    "reserving": Reserving,
    "recalling": Recalling,
    "insistent": Insistent,
    "trusting": Trusting,
    "oblivious": Oblivious,
    "reconnecting": Reconnecting,
}
ON_BROKER: Final[dict[str, type[Counting]]] = {
    **RIVALS,
    "dropping": DroppingOnBroker,
    "requeueing": RequeueingOnBroker,
    "namesake": NamesakeOnBroker,
}
"""The contestants at a broker, where no server counts, by name."""
