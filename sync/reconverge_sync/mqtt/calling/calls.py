"""Writes and reads members' calls to the leader and the replies, about usage, keys and the state of the data.

A call is its number and an array in msgpack, `[operation, argument, ...]`; the reply is that number and either `[True,
value]` or `[False, kind, problem]`. Exchanges of batches have messages of their own. Each value that is read is
checked; reading raises `MalformedMessage` and nothing else.
"""

# Members of an older version ignore and count calls, so the call times out. A member that does
# not know an operation replies so, so that operations can be added.

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, cast

import msgpack

from reconverge.errors import HubUnavailable
from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.json_codec import Malformed, read_limit
from reconverge.hub.reading import READ_MAX, KeyQuestion, KeyReading, KeyReadings
from reconverge.hub.report import WHOLE_MAX, sent_limit
from reconverge.hub.usage import (
    EVENTS_MAX,
    KINDS,
    NOTHING,
    PAGES,
    Counts,
    ExportLease,
    ExportMarks,
    NodeLoad,
    Period,
    Recorded,
    Retention,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
)
from reconverge_sync.mqtt.messages import KEY_BYTES_MAX, MalformedMessage, MessageKind, body, is_text, is_whole, sealed

ROWS_MAX: Final = 4096
"""The most rows in one call. A node sends about 256 at once, each for up to four kinds of periods."""
TEXT_BYTES_MAX: Final = 4096
"""The longest identity, limit or route in bytes: 512 characters, with escapes."""
REPLY_BYTES_WANTED: Final = 1 << 18
"""The size in bytes, about, of the parts into which a long list of rows or events is divided."""
KEPT_MAX: Final = 4096
"""The largest retention that a node may request, in periods of one kind."""
PROBLEM_MAX: Final = 400
MILLI: Final = 1000
_NUMBER: Final = Struct("<Q")

Call = list[Any]
"""A call as a list: the name of the operation, then its arguments."""


class RefusedReply(NamedTuple):
    """A reply that refuses a call: the kind of the problem, and its text."""

    kind: str
    problem: str


def write_call(number: int, call: Call) -> bytes:
    """Returns a call, with its number, as a message. Raises HubUnavailable if a value cannot be sent."""
    return sealed(MessageKind.CALL, _NUMBER.pack(number) + _packed(call))


def read_call(payload: bytes) -> tuple[int, Call]:
    """Reads a message that is a call; returns its number and the call. Raises MalformedMessage if invalid."""
    number, call = _read(payload, MessageKind.CALL)
    _check(type(call) is list and len(call) > 0 and is_text(call[0], 1))
    return number, cast("Call", call)


def write_reply(number: int, value: Any) -> bytes:
    """Returns the reply to the call `number` as a message. Raises HubUnavailable if a value cannot be sent."""
    outcome = [False, value.kind, value.problem[:PROBLEM_MAX]] if isinstance(value, RefusedReply) else [True, value]
    return sealed(MessageKind.REPLY, _NUMBER.pack(number) + _packed(outcome))


def read_reply(payload: bytes) -> tuple[int, Any]:
    """Returns the number of the call that a reply answers, and the value or a `RefusedReply`.

    Raises MalformedMessage if the reply is invalid.
    """
    number, outcome = _read(payload, MessageKind.REPLY)
    match outcome:
        case [True, value]:
            return number, value
        case [False, str(kind), str(problem)] if is_text(kind, 1) and len(problem) <= PROBLEM_MAX:
            return number, RefusedReply(kind, problem)
        case _:
            raise MalformedMessage("reply", f"the outcome of call {number} is neither a value nor a kind and a problem")


def _packed(value: Any) -> bytes:
    try:
        return cast("bytes", msgpack.packb(value, unicode_errors="surrogatepass"))
    except (ValueError, TypeError, OverflowError):
        problem = f"a {type(value).__name__} of a question or an answer cannot be written as a message of MQTT"
        raise HubUnavailable("protocol", f"{problem}; use smaller costs", applied=False) from None


def _read(payload: bytes, kind: MessageKind) -> tuple[int, Any]:
    content = body(payload, kind)
    try:
        (number,) = _NUMBER.unpack_from(content)
        rest = content[_NUMBER.size :]
        return number, msgpack.unpackb(rest, strict_map_key=False, unicode_errors="surrogatepass")
    except (ValueError, TypeError, RecursionError, struct.error, msgpack.UnpackException):
        name = kind.name.lower()
        raise MalformedMessage(name, f"a {name} of {len(content)} bytes cannot be decoded") from None


# ---------------------------------------------------------------- usage


def sent_batch(batch: UsageBatch) -> Call:
    """Returns a batch of usage as the arguments of the call `record`, by which a node reports it to the leader."""
    by_key: dict[UsageKey, list[Any]] = {}
    for period, key, counts in batch.rows:
        by_key.setdefault(key, []).append([*period, *counts])
    rows = [[*key, counted] for key, counted in by_key.items()]
    leaving = None if batch.leaving is None else [list(period) for period in batch.leaving]
    load = None if batch.load is None else reported_load(batch.load)
    return [batch.account, batch.sequence, batch.answered, rows, list(batch.kept), leaving, load]


def read_usage_batch(arguments: Call, *, shard: int) -> UsageBatch:
    """Returns the batch of usage in `arguments` of `sent_batch`. Raises MalformedMessage if it is not for `shard`."""
    _check(len(arguments) == 7)
    account, sequence, answered, rows, kept, leaving, load = arguments
    _check(is_text(account, 1) and is_whole(sequence, 1) and is_whole(answered) and sequence < WHOLE_MAX)
    _check(len(_list(kept)) == len(Retention._fields) and all(is_whole(each) and each <= KEPT_MAX for each in kept))
    periods = None if leaving is None else [read_period(each) for each in _list(leaving)]
    read = tuple(_rows(rows))
    _check(len(read) <= ROWS_MAX)
    node_load = None if load is None else read_load(load)
    return UsageBatch(account, shard, sequence, answered, read, Retention(*kept), periods, node_load)


def _rows(rows: Any) -> Iterable[UsageRow]:
    for row in _list(rows):
        _check(len(_list(row)) == 4)
        key = read_key(row[:3])
        for sent in _list(row[3]):
            _check(len(_list(sent)) == 5)
            yield UsageRow(read_period(sent[:2]), key, read_counts(sent[2:]))


def read_period(sent: Any) -> Period:
    """Returns the period that a message names by its kind and number. Raises MalformedMessage if it names none."""
    _check(len(_list(sent)) == 2 and sent[0] in KINDS and is_whole(sent[1]))
    return Period(*sent)


def read_key(sent: Any) -> UsageKey:
    """Returns the key of usage in a list of an identity, a limit and a route. Raises MalformedMessage if invalid."""
    _check(len(_list(sent)) == 3)
    _check(all(is_text(each, 0, TEXT_BYTES_MAX) and "\0" not in each for each in sent))
    return UsageKey(*sent)


def read_counts(sent: Any) -> Counts:
    """Returns the counts of a row, from a list of whole numbers. Raises MalformedMessage if invalid."""
    _check(len(_list(sent)) == len(Counts._fields))
    _check(all(type(each) is int and abs(each) <= WHOLE_MAX for each in sent))
    return Counts(*sent)


def reported_load(load: NodeLoad) -> Call:
    """Returns a node's load as a list, with rates in thousandths."""
    return [load.node, round(load.requests_per_s * MILLI), round(load.cost_per_s * MILLI), load.at_us]


def read_load(sent: Any) -> NodeLoad:
    """Returns the load in a list made by `reported_load`. Raises MalformedMessage if invalid."""
    _check(len(_list(sent)) == 4 and is_text(sent[0], 0, TEXT_BYTES_MAX) and is_whole(sent[3]))
    _check(all(type(each) is int and abs(each) <= WHOLE_MAX for each in sent[1:3]))
    return NodeLoad(sent[0], sent[1] / MILLI, sent[2] / MILLI, sent[3])


def sent_recorded(recorded: Recorded) -> Call:
    """Returns the hub's answer to a batch of usage as a list, for the leader's reply to the call `record`."""
    done, refused = dict(recorded.done), list(recorded.refused)
    return [recorded.known, recorded.merged, recorded.folded, done, recorded.hub_us, refused]


def read_recorded(sent: Any) -> Recorded:
    """Returns the hub's answer to a batch of usage, from a list made by `sent_recorded`. Raises MalformedMessage."""
    _check(len(_list(sent)) == 6)
    known, merged, folded, done, hub_us, refused = sent
    _check(is_whole(known) and type(merged) is bool and is_whole(folded) and is_whole(hub_us))
    _check(len(_list(refused)) <= ROWS_MAX and all(is_whole(each) for each in refused))
    return Recorded(known, merged, folded, _by_kind(done), hub_us, tuple(refused))


def read_lease(sent: Any) -> ExportLease:
    """Returns the lease of an exporter, from a list of its fields. Raises MalformedMessage if invalid."""
    _check(len(_list(sent)) == 4)
    leads, exporter, until_us, hub_us = sent
    _check(type(leads) is bool and is_text(exporter, 1) and is_whole(until_us) and is_whole(hub_us))
    return ExportLease(*sent)


def sent_marks(marks: ExportMarks) -> Call:
    """Returns the marks (the progress) of an export as a list, for the leader's reply to the call `marks`."""
    return [marks.first, marks.closed, marks.done, dict(marks.late)]


def read_marks(sent: Any) -> ExportMarks:
    """Returns the marks (the progress) of an export in a list made by `sent_marks`. Raises MalformedMessage."""
    _check(len(_list(sent)) == 4 and all(each is None or is_whole(each) for each in sent[:3]) and type(sent[3]) is dict)
    _check(all(is_whole(number) and is_whole(mark) for number, mark in sent[3].items()))
    return ExportMarks(*sent)


def _by_kind(sent: Any) -> Mapping[str, int]:
    _check(type(sent) is dict and all(kind in KINDS and is_whole(number) for kind, number in sent.items()))
    return cast("Mapping[str, int]", sent)


def sent_rows(rows: Sequence[UsageRow], offset: int) -> Call:
    """Returns `[part, next]`: as many of `rows` from index `offset` on as fit, and the next index, -1 at the end."""
    sent: list[Any] = []
    size, place = 0, offset
    while place < len(rows) and size < REPLY_BYTES_WANTED:
        _, key, counts = rows[place]
        sent.append([*key, *counts])
        size += 40 + 2 * sum(map(len, key))
        place += 1
    return [sent, place if place < len(rows) else -1]


def read_rows(period: Period, offset: int, sent: Any) -> tuple[list[UsageRow], int]:
    """Reads a list made by `sent_rows`; returns the rows and the next offset, or -1. Raises MalformedMessage."""
    _check(len(_list(sent)) == 2 and type(sent[1]) is int and (sent[1] == -1 or sent[1] > offset))
    rows: list[UsageRow] = []
    for row in _list(sent[0]):
        _check(len(_list(row)) == 6)
        rows.append(UsageRow(period, read_key(row[:3]), read_counts(row[3:])))
    return rows, sent[1]


def sent_events(events: Sequence[UsageEvent]) -> Call:
    """Returns as many of `events` as fit into one reply, as a list without their period, which the call has named."""
    sent: list[Any] = []
    size = 0
    for _, key, number, counts in events:
        if sent and size > REPLY_BYTES_WANTED:
            break
        sent.append([*key, number, *counts])
        size += 50 + 2 * sum(map(len, key))
    return sent


def read_events(period: Period, sent: Any) -> list[UsageEvent]:
    """Returns the events of `period` in a list made by `sent_events`. Raises MalformedMessage if invalid."""
    events: list[UsageEvent] = []
    for event in _list(sent):
        _check(len(_list(event)) == 7 and is_whole(event[3]))
        events.append(UsageEvent(period, read_key(event[:3]), event[3], read_counts(event[4:])))
    return events


def read_confirmed(period: Period, sent: Any) -> list[UsageEvent]:
    """Returns the events that a call confirms, from a list of their keys and numbers. Raises MalformedMessage."""
    _check(len(_list(sent)) <= EVENTS_MAX)
    events: list[UsageEvent] = []
    for event in sent:
        _check(len(_list(event)) == 4 and is_whole(event[3]))
        events.append(UsageEvent(period, read_key(event[:3]), event[3], NOTHING))
    return events


def sent_retracted(account: str, rows: Sequence[tuple[Period, UsageKey]]) -> Call:
    """Returns the arguments of the call `retract`, by which an account takes back its counts of these rows."""
    return [account, [[*period, *key] for period, key in rows]]


def read_retracted(arguments: Call) -> tuple[str, list[tuple[Period, UsageKey]]]:
    """Returns the account and the rows in arguments made by `sent_retracted`. Raises MalformedMessage if invalid."""
    _check(len(arguments) == 2 and is_text(arguments[0], 1) and len(_list(arguments[1])) <= ROWS_MAX)
    rows: list[tuple[Period, UsageKey]] = []
    for row in arguments[1]:
        _check(len(_list(row)) == 5)
        rows.append((read_period(row[:2]), read_key(row[2:])))
    return arguments[0], rows


def read_page_of(arguments: Call, more: int = 0) -> tuple[Period, int, Call]:
    """Returns the period, the page and the `more` further arguments of a call. Raises MalformedMessage if invalid."""
    _check(len(arguments) == 3 + more and is_whole(arguments[2]) and arguments[2] < PAGES)
    return read_period(arguments[:2]), arguments[2], arguments[3:]


# ---------------------------------------------------------------- keys and data


def sent_questions(questions: Sequence[KeyQuestion]) -> Call:
    """Returns questions about keys as the arguments of the call `read_keys` to the leader."""
    return [[list(sent_limit(limit)), key] for limit, key in questions]


def read_questions(arguments: Call) -> list[KeyQuestion]:
    """Returns the questions in arguments made by `sent_questions`. Raises MalformedMessage if invalid."""
    _check(len(arguments) <= READ_MAX)
    questions: list[KeyQuestion] = []
    for sent in arguments:
        _check(len(_list(sent)) == 2 and is_text(sent[1], 0, KEY_BYTES_MAX))
        try:
            limit = read_limit(sent[0])
        except Malformed as error:
            raise MalformedMessage("limit", f"the limit of a question about a key cannot be read: {error}") from None
        _check(is_text(limit.name) and is_text(limit.variant))
        questions.append(KeyQuestion(limit, sent[1]))
    return questions


def sent_readings(readings: KeyReadings) -> Call:
    """Returns the readings of keys as a list, for the leader's reply to the call `read_keys`."""
    return [readings.hub_us, readings.generation, [list(each) for each in readings.keys]]


def read_readings(sent: Any, *, asked: int) -> KeyReadings:
    """Returns the readings in a list made by `sent_readings`.

    Raises MalformedMessage if they are not `asked` in number.
    """
    _check(len(_list(sent)) == 3 and is_whole(sent[0]) and is_text(sent[1]) and len(_list(sent[2])) == asked)
    keys: list[KeyReading] = []
    for each in sent[2]:
        _check(len(_list(each)) == len(KeyReading._fields) and all(type(number) is int for number in each))
        keys.append(KeyReading(*each))
    return KeyReadings(sent[0], sent[1], tuple(keys))


def read_data(sent: Any) -> HubData:
    """Returns the state of a shard's data, from a list of its fields. Raises MalformedMessage if invalid."""
    _check(len(_list(sent)) == len(HubData._fields))
    data = HubData(*sent)
    _check(is_text(data.generation) and type(data.lost) is bool)
    _check(
        all(is_whole(each) for each in (data.hub_us, data.begun_us, data.reports_until_us, data.nodes, data.adopted))
    )
    return data


def read_adoption(sent: Any) -> Adoption:
    """Returns the outcome of adopting a loss, from a list of its fields. Raises MalformedMessage if invalid."""
    _check(len(_list(sent)) == 2 and is_text(sent[0], 0, TEXT_BYTES_MAX) and is_whole(sent[1]))
    return Adoption(*sent)


def _list(value: Any) -> Call:
    _check(type(value) is list)
    return cast("Call", value)


def _check(fits: bool) -> None:  # noqa: FBT001  # it reads like an assertion
    if not fits:
        raise MalformedMessage(
            "call",
            "an argument of a call, or a value in its reply, is of the wrong type or out of range",
        )
