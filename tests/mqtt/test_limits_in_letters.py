"""Goal: a limit that has a lease, an interval or a part of its own is the same at the other end of a connection.

Method: what members write to each other by way of a broker is read back field by field.
"""

from __future__ import annotations

import struct

import msgpack

from reconverge.hub.json_codec import read_limit
from reconverge.hub.report import SCHEMA_VERSION, Batch, CellReport, LimitReport, heard_limit, sent_limit
from reconverge_sync.mqtt.messages import read_batch, write_batch

LIMITS = (
    LimitReport("short", "sliding-window", 1_000_000, 10, 10, 100, 7, 1, lease_us=30_000_000),
    LimitReport("all of it", "token-bucket", 1_000_000, 10, 10, 100, 7, 1, interval_us=5, apart=3, lease_us=40_000_000),
    LimitReport("day", "fixed-window", 10**11, 10, 10, 0, 7, 1, "calendar@UTC", 0, 20_000, 5, 10**11 + 5),
    LimitReport("node's", "sliding-log", 3_600_000_000, 10, 10, 0, 7, 1),
)
BATCH = Batch(
    "ada.0",
    "ada",
    0,
    7,
    "now",
    100_000,
    600_000_000,
    leaving=False,
    limits=LIMITS,
    cells=(CellReport._make((0, "key", 5, *[0] * 11)),),
    heard_us=5,
)


def test_a_letter_has_all_fields_within_their_ranges() -> None:
    """Also of limits with a lease, an interval, a calendar or a part of their own."""
    letter = write_batch(BATCH)
    (shared_bytes,) = struct.unpack_from("<I", letter, 4)
    shared = msgpack.unpackb(letter[14 : 14 + shared_bytes])
    version, *_, leaving, limits, heard_us = shared

    assert (SCHEMA_VERSION, 11, 5) == (version, len(shared), heard_us)
    assert leaving in (0, 1)
    assert [15] * len(LIMITS) == [len(limit) for limit in limits]
    assert all(type(number) is int and 0 <= number <= 2**53 for limit in limits for number in (limit[10], limit[12]))


def test_a_lease_of_a_limit_travels_in_the_place_of_a_calendars_window() -> None:
    """That is of no use to a limit without a calendar; and the lease comes back as it was."""
    assert [30_000_000, 40_000_000, 20_000, 0] == [sent_limit(limit)[10] for limit in LIMITS]
    assert LIMITS == tuple(heard_limit(LimitReport(*sent_limit(limit))) for limit in LIMITS)  # type: ignore[arg-type]
    assert LIMITS == tuple(read_limit(sent_limit(limit)) for limit in LIMITS)
    assert LIMITS == read_batch(write_batch(BATCH), shard=0).limits
