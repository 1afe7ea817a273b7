"""Makes the leader's replies to calls, by the merge rule, from the ledger and the usage that the leader keeps for all.

Nothing here waits: a call is answered as of one moment, between two batches. An invalid call raises `MalformedMessage`
before anything changes; a call that cannot be carried out raises HubUnavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from reconverge.hub.usage import KINDS
from reconverge_sync.merge.orders import adopt, data_of
from reconverge_sync.merge.reading import read_keys
from reconverge_sync.mqtt.calling.calls import (
    Call,
    RefusedReply,
    read_confirmed,
    read_page_of,
    read_period,
    read_questions,
    read_retracted,
    read_usage_batch,
    reported_load,
    sent_events,
    sent_marks,
    sent_readings,
    sent_recorded,
    sent_rows,
)
from reconverge_sync.mqtt.leader import LeaderState
from reconverge_sync.mqtt.messages import MalformedMessage, is_text, is_whole

UNSUPPORTED: Final = "unsupported"
KEEP_US_MAX: Final = 366 * 86_400 * 1_000_000


def answer(kept: LeaderState, call: Call) -> Any:
    """Carries out `call` on the leader's state, and returns the value of the reply.

    Raises MalformedMessage for an invalid call, and HubUnavailable for one that this state cannot serve now.
    """
    operation, *arguments = call
    found = OPERATIONS.get(operation)
    if found is None:
        return RefusedReply(UNSUPPORTED, "the leader runs a version of reconverge that cannot do this; update it")
    return found(kept, arguments)


def _record(kept: LeaderState, arguments: Call) -> Any:
    batch = read_usage_batch(arguments, shard=kept.shard)
    return sent_recorded(kept.usage.record(batch, hub_us=kept.hub_us))


def _totals(kept: LeaderState, arguments: Call) -> Any:
    period, page, (offset,) = read_page_of(arguments, 1)
    _check(is_whole(offset))
    return sent_rows(kept.usage.totals(period, page), offset)


def _loads(kept: LeaderState, arguments: Call) -> Any:
    _check(not arguments)
    return [reported_load(load) for load in kept.usage.loads(kept.hub_us)]


def _lead_export(kept: LeaderState, arguments: Call) -> Any:
    _check(len(arguments) == 3)
    kind, exporter, keep_us = arguments
    _check(kind in KINDS and is_text(exporter, 1) and is_whole(keep_us) and keep_us <= KEEP_US_MAX)
    return list(kept.usage.lead_export(kind, exporter, kept.hub_us + keep_us, kept.hub_us))


def _marks(kept: LeaderState, arguments: Call) -> Any:
    _check(len(arguments) == 1 and arguments[0] in KINDS)
    return sent_marks(kept.usage.marks(arguments[0]))


def _close_period(kept: LeaderState, arguments: Call) -> Any:
    return kept.usage.close_period(read_period(arguments), kept.hub_us)


def _issue(kept: LeaderState, arguments: Call) -> Any:
    period, page, _ = read_page_of(arguments)
    return sent_events(kept.usage.issue(period, page))


def _confirm(kept: LeaderState, arguments: Call) -> Any:
    period, page, (confirmed,) = read_page_of(arguments, 1)
    kept.usage.confirm(read_confirmed(period, confirmed), page)
    return True


def _retract(kept: LeaderState, arguments: Call) -> Any:
    kept.usage.retract(*read_retracted(arguments))
    return True


def _finish(kept: LeaderState, arguments: Call) -> Any:
    _check(len(arguments) == 3 and (arguments[2] is None or is_whole(arguments[2])))
    kept.usage.finish(read_period(arguments[:2]), arguments[2], kept.hub_us)
    return True


def _read_keys(kept: LeaderState, arguments: Call) -> Any:
    return sent_readings(read_keys(kept.ledger, read_questions(arguments), kept.hub_us))


def _data(kept: LeaderState, arguments: Call) -> Any:
    _check(not arguments)
    return list(data_of(kept.ledger, kept.hub_us))


def _adopt(kept: LeaderState, arguments: Call) -> Any:
    _check(len(arguments) == 1 and is_text(arguments[0]))
    return list(adopt(kept.ledger, arguments[0], kept.hub_us))


_OF_USAGE: Final[Mapping[str, Callable[[LeaderState, Call], Any]]] = {
    "record": _record,
    "totals": _totals,
    "loads": _loads,
    "lead_export": _lead_export,
    "marks": _marks,
    "close_period": _close_period,
    "issue": _issue,
    "confirm": _confirm,
    "finish": _finish,
    "retract": _retract,
}
USAGE_OPERATIONS: Final = frozenset(_OF_USAGE)
OPERATIONS: Final[Mapping[str, Callable[[LeaderState, Call], Any]]] = {
    **_OF_USAGE,
    "read_keys": _read_keys,
    "data": _data,
    "adopt": _adopt,
}


def _check(fits: bool) -> None:  # noqa: FBT001  # it reads like an assertion
    if not fits:
        raise MalformedMessage("call", "an argument of a call is of the wrong type, or out of range")
