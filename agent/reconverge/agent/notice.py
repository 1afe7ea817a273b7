"""Logs facts about this installation and its limits that an operator should know, each once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, ClassVar, Final

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import MISSING, PYTHON_IS_ASKED_FOR, WITHOUT_LOCK
from reconverge.kernel.keys import OF_OBJECT
from reconverge.limit.idle import idle_in
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.settings import EXCHANGES_MIN

if TYPE_CHECKING:
    from types import FrameType

    from reconverge.kernel import Table
    from reconverge.limit.limit import Limit

logger = logging.getLogger("reconverge")

_logged = LoggedOnce()
LIMITS_MANY: Final = 2000
"""At so many limits of one agent a warning is logged: more than are written by hand, or made by a drop-in storage."""


ANEW: Final = 3
"""At so many agents of memory:// that one line has made, a warning is logged: an application may be made twice."""
PLACES_MAX: Final = 1000
"""The most places in a program, each with a limit, that are counted; further places are not looked at."""
_made: Final = dict[tuple[tuple[str, int], str], int]()
"""How many agents of memory:// that were made at a place have got a limit, by file, line and the limit's name."""


def log_installation() -> None:
    """Logs, once in this process, that decisions run in Python without the compiled kernel, and why."""
    if WITHOUT_LOCK and not PYTHON_IS_ASKED_FOR and _logged.is_new():
        logger.warning(
            "reconverge: this interpreter runs without its global lock, for which the compiled kernel is not written, "
            "so Python decides, and takes about ten times as long; run with PYTHON_GIL=1 for the compiled kernel, or "
            "set RECONVERGE_NO_EXTENSIONS=1 if so intended"
        )
    if MISSING and _logged.is_new():
        logger.warning(
            "reconverge: the compiled kernel is missing, and decisions take about ten times as long; install a C "
            "compiler and Python's headers (on Debian: apt-get install gcc python3-dev), then reconverge again, with "
            "pip install --force-reinstall --no-deps --no-cache-dir; or set RECONVERGE_NO_EXTENSIONS=1 if so intended"
        )


class AgentInUse:
    """Logs once, for each hub and namespace, that a process uses a second agent while the first is not stopped.

    An agent that is made anew in each call counts from nothing each time, so no limit would ever refuse.
    """

    _unstopped: ClassVar[dict[tuple[int, str, str], set[int]]] = {}
    """The numbers of agents that began and were not stopped, by process, hub and namespace; at most two for each of
    these."""
    _numbers: ClassVar[Iterator[int]] = count()

    def __init__(self, hub_name: str, namespace: str) -> None:
        self._hub_name = hub_name
        self._namespace = namespace
        self._number = next(self._numbers)

    def begins(self) -> None:
        """Records that this agent begins to exchange. Warns if another agent exchanges, too, and was not stopped."""
        known = self._unstopped.setdefault((os.getpid(), self._hub_name, self._namespace), set())
        if len(known) < 2:
            known.add(self._number)
        if len(known) > 1 and _logged.is_new((self._hub_name, self._namespace)):
            logger.warning(
                "reconverge: this process uses a second agent for the hub %s and the namespace %r, and has not stopped"
                " the first; each decides by the last reports of the other, and an agent made for each call has"
                " none, so it refuses nothing. Make one agent where the module is imported, and use it everywhere",
                self._hub_name,
                self._namespace,
            )

    def ends(self) -> None:
        """Records that the agent was stopped."""
        self._unstopped.get((os.getpid(), self._hub_name, self._namespace), set()).discard(self._number)


def log_made_anew(made_at: tuple[str, int], name: str) -> None:
    """Logs once that a line of the program has made several agents of memory://, each of which has got the same limit.

    In a call it makes an agent each time, which has counted nothing. A test makes agents of its own, too: while one of
    pytest runs, nothing is logged.
    """
    place = (made_at, name)
    if "PYTEST_CURRENT_TEST" in os.environ or (len(_made) >= PLACES_MAX and place not in _made):
        return
    _made[place] = _made.get(place, 0) + 1
    if _made[place] == ANEW and _logged.is_new(place):
        logger.warning(
            "reconverge: %s, line %d, has made an agent of memory:// with the limit %r %d times, and each counts "
            "alone, so an agent made for each call refuses nothing. Make one agent where the module is imported, and "
            "use it everywhere; if several are meant, make each in a `with` block",
            *place[0],
            name,
            ANEW,
        )


def callers_place(frame: FrameType | None) -> tuple[str, int]:
    """Returns the file and line of the innermost frame that is not this package's."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "reconverge":
        frame = frame.f_back
    return ("the program", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def log_manual_clock(hub_name: str) -> None:
    """Logs once that an agent of a hub, which has a clock of its own, was given a clock that a test moves."""
    if _logged.is_new(ManualClock):
        logger.warning(
            "reconverge: clock=ManualClock(...) moves this agent alone, and the hub %s decides by its own clock, so "
            "windows and leases do not end when the test moves on; write Agent('memory://', clock=...) in this test",
            hub_name,
        )


def log_forked(hub_name: str) -> None:
    """Logs once in a forked child, when it decides, that it counts apart from its parent, which lives on."""
    _log_apart(f"was forked from one that has an agent of {hub_name}")


def log_one_of_several(which: str | None, hub_name: str) -> None:
    """Logs once that this process counts apart from those like it; `which` describes it, and is None without any."""
    if which is not None:
        _log_apart(f"is {which}, has an agent of {hub_name}")


def _log_apart(what: str) -> None:
    if _logged.is_new(("apart", os.getpid())):
        logger.warning(
            "reconverge: this process %s, and decides with counts of its own from here on, as each such process does, "
            "so together they admit more; name a hub that processes share, such as embedded:// or a Redis",
            what,
        )


class ShortWindows:
    """Logs, once for each quota, that its window is too short for its sync interval, the time between two exchanges."""

    def __init__(self) -> None:
        self._logged = LoggedOnce()

    def look(self, tables: Iterable[Table]) -> None:
        """Logs each of `tables` whose window is too short for its sync interval.

        The caller passes tables that are new, or whose interval has changed.
        """
        for table in tables:
            short = table.limit.window_ns < EXCHANGES_MIN * table.interval_ns
            if short and self._logged.is_new(table.name):
                _log_short_window(table)
            elif not short:
                self._logged.forget(table.name)


def _log_short_window(table: Table) -> None:
    logger.warning(
        "reconverge: the quota %r has a window of %g s, and its counts are exchanged every %g s; a node receives the "
        "counts of other nodes when the window is over, so nodes share little. Exchange every %g s or more often "
        "(sync_interval), or use a longer window.",
        table.name,
        table.limit.window,
        table.interval_ns / SECOND_NS,
        table.limit.window / EXCHANGES_MIN,
    )


def log_many(limits: int, name: str) -> None:
    """Logs a warning when an agent has `LIMITS_MANY` limits: the program probably declares one for each user.

    One limit with the user as key would do. `limits` is the number of limits, `name` the name of the last one.
    """
    if limits == LIMITS_MANY:
        logger.warning(
            "reconverge: this agent has %d limits, the last of which is %r, and each takes memory here and at the hub;"
            " a limit counts each key on its own, so if users have limits of their own, declare one limit for all, and"
            " write limiter.allow(user)",
            limits,
            name,
        )


def log_soft(quotas: Mapping[str, Limit]) -> None:
    """Logs the quotas of a limit that are so small that the setting `soft`, an extra fraction, adds nothing to them."""
    for name, limit in quotas.items():
        if limit.soft and limit.capacity == limit.nominal:
            logger.warning(
                "reconverge: soft=%g adds less than one request to the %d of the quota %r, so it has no effect there;"
                " give soft=%g or more, or write Limit(..., soft=...) for the other quotas alone",
                limit.soft,
                limit.nominal,
                name,
                ceil(1000 / limit.nominal) / 1000,
            )


def log_idle(quotas: Mapping[str, Limit]) -> None:
    """Logs the quotas of a limit that can never refuse, because another of its quotas is always used up first."""
    for name, other in idle_in(quotas):
        logger.warning(
            "reconverge: the quota %r, %s, can never refuse, as %s of the same limit is used up first; are their "
            "windows swapped? Correct one, or leave it out",
            name,
            quotas[name],
            quotas[other],
        )


def log_idle_cap(name: str, cap: str) -> None:
    """Logs once that the cap of a limit has no effect, as its agent reads no published settings."""
    if _logged.is_new(("cap", name)):
        logger.warning(
            "reconverge: cap=%r of the limit %r has an effect on published settings alone, and this agent reads none; "
            "give it the settings_secret, or leave cap out",
            cap,
            name,
        )


def log_switch_again(name: str, before: str, after: str) -> None:
    """Logs that a limit was declared again with another switch; the new switch holds for all users of the limit."""
    if before != after:
        logger.warning(
            "reconverge: the limit %r was declared before, and is declared again with switch=%r, which takes it from "
            "%r to %r wherever it is used; write limiter.switch(%r) if so intended, or use another name",
            name,
            after,
            before,
            after,
            after,
        )


def log_reentry(name: str) -> None:
    """Logs that code which interrupted a decision about a limit, such as a signal handler, requested another one."""
    logger.warning(
        "reconverge: the limit %r was asked in the middle of a decision about it, by a signal handler, a finalizer or "
        "the like on the same thread. Such a request is refused, because nothing can be charged at that moment; "
        "agent.stats() counts it as `reentered`. Give the handler a limit of its own if that happens often.",
        name,
    )


def log_if_of_object(key: str, limit: str) -> None:
    """Logs once for each limit that a key contains the text of an object, which is another one for each object."""
    if OF_OBJECT in key:
        log_of_object(limit, key)


def log_of_object(limit: str, key: str) -> None:
    """Logs once for each limit that a key is the text of an object."""
    if _logged.is_new((OF_OBJECT, limit)):
        logger.warning(
            "reconverge: a key of the limit %r is %r, the text of an object whose class has no __str__; each is a"
            " key of its own, so the limit refuses nothing; return what identifies it, as str(user.id)",
            limit,
            key,
        )
