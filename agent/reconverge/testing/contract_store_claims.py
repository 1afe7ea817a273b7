"""Tests of the promises of `reconverge.hub.ContractStore`, for the tests of such a hub to inherit."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import sha256
from typing import ClassVar, Final, Protocol
from unittest import SkipTest

from reconverge.hub.port import ContractStore
from reconverge.testing.claims.scenes.trial import Tried, claims_by, run_and_close

BYTES_MAX: Final = 1000
KEEP_S: Final = 600.0
PAYLOAD: Final = bytes(range(256))
PAGES: Final = tuple(b"page %d" % number for number in range(40))
WRITERS: Final = 8
POLL_S: Final = 0.01


class ContractHub(ContractStore, Protocol):
    """A store of contracts that can be closed."""

    async def close(self) -> None: ...


@claims_by
def claim(suite: ContractStoreClaims, tried: Tried) -> None:
    """Tries a claim on a new hub."""
    hub = suite.make_store()
    run_and_close(tried(hub), [hub])


class ContractStoreClaims:
    """Tests of the promises of every store of contracts; to be inherited beside `HubClaims`, or alone.

    A subclass overrides `make_store`, which returns the hub to test. If other objects see a new index only after a
    while, as with a broker that pushes it, set `patience_s` to the longest such time.
    """

    patience_s: ClassVar[float] = 0.0
    """How long it may take until other objects read an index that was put; the object that has put it reads it at
    once."""

    def make_store(self) -> ContractHub:
        """Returns a hub that keeps nothing yet. Called outside of any event loop, once for each claim."""
        raise NotImplementedError("define which hub to test: def make_store(self) -> Hub")

    def join_store(self, hub: ContractHub) -> ContractHub:
        """Returns another object for the same hub, as another process would have; by default `hub` itself."""
        return hub

    def make_store_of_a_stranger(self, hub: ContractHub) -> ContractHub:
        """Returns a hub on the same server, with another namespace."""
        raise SkipTest("the suite has no make_store_of_a_stranger; define it to test a hub of another namespace")

    @claim
    async def test_before_anything_is_put_nothing_is_there(self, hub: ContractHub) -> None:
        """An empty store returns None for the index and for a page, not an empty payload."""
        digest = _digest(PAYLOAD)
        assert await hub.read_index(bytes_max=BYTES_MAX) is None
        assert await hub.get_page(digest, bytes_max=BYTES_MAX) is None
        assert await hub.keep_pages([digest], keep_s=KEEP_S) == [digest]
        assert await hub.keep_pages([], keep_s=KEEP_S) == []

    @claim
    async def test_an_index_is_swapped_for_what_was_read_and_for_nothing_else(self, hub: ContractHub) -> None:
        """A writer replaces the index only if it names the present one, or None if there is none."""
        other = self.join_store(hub)
        assert not await _swaps(hub, b"first", over=b"something")
        assert await hub.read_index(bytes_max=BYTES_MAX) is None
        assert await _swaps(hub, b"first", over=None)
        await self._reads(other, b"first")
        for over in (None, b"", b"firs", b"first ", PAYLOAD):
            assert not await _swaps(other, b"second", over=over)
        assert await hub.read_index(bytes_max=BYTES_MAX) == b"first"
        assert await _swaps(other, PAYLOAD, over=b"first")
        await self._reads(hub, PAYLOAD)
        assert await _swaps(hub, b"first", over=PAYLOAD)
        await self._reads(other, b"first")
        await other.close()

    @claim
    async def test_of_writers_at_once_one_is_in_time(self, hub: ContractHub) -> None:
        """Of several writers at the same time exactly one succeeds.

        The other writers get False, and all readers get the index of the writer that has succeeded.
        """
        writers = [self.join_store(hub) for _ in range(WRITERS)]
        over: bytes | None = None
        for turn in range(3):
            payloads = [b"%d of %d" % (turn, number) for number in range(WRITERS)]
            done = await asyncio.gather(
                *(_swaps(writer, payload, over=over) for writer, payload in zip(writers, payloads, strict=True))
            )
            assert sum(done) == 1
            over = payloads[done.index(True)]
            await self._reads(hub, over)
        for writer in writers:
            if writer is not hub:
                await writer.close()

    @claim
    async def test_a_page_is_read_as_it_was_put_by_all(self, hub: ContractHub) -> None:
        """Pages of any bytes can be put and read repeatedly, each under its digest, from every object."""
        other = self.join_store(hub)
        for payload in (*PAGES, PAYLOAD, b"", *PAGES):
            await hub.put_page(_digest(payload), payload, keep_s=KEEP_S)
        for payload in (*PAGES, PAYLOAD, b""):
            assert await other.get_page(_digest(payload), bytes_max=BYTES_MAX) == payload
        assert await other.read_index(bytes_max=BYTES_MAX) is None
        await other.close()

    @claim
    async def test_something_too_long_is_seen_to_be_that(self, hub: ContractHub) -> None:
        """A payload of `bytes_max` bytes is read whole; of a longer one a reader gets the first `bytes_max + 1` bytes.

        An index that is too long can be replaced.
        """
        fits, long = b"x" * BYTES_MAX, b"y" * 40 * BYTES_MAX
        for payload in (fits, long):
            await hub.put_page(_digest(payload), payload, keep_s=KEEP_S)
            assert await hub.get_page(_digest(payload), bytes_max=BYTES_MAX) == payload[: BYTES_MAX + 1]
        over: bytes | None = None
        for payload in (fits, long, b"short"):
            assert await _swaps(hub, payload, over=over)
            over = await hub.read_index(bytes_max=BYTES_MAX)
            assert over == payload[: BYTES_MAX + 1]

    @claim
    async def test_pages_that_are_not_there_are_named(self, hub: ContractHub) -> None:
        """The store names the pages that it lacks; the other pages can be read afterwards."""
        there, gone = PAGES[::2], PAGES[1::2]
        for payload in there:
            await hub.put_page(_digest(payload), payload, keep_s=KEEP_S)
        missing = await hub.keep_pages([_digest(payload) for payload in PAGES], keep_s=2 * KEEP_S)
        assert sorted(missing) == sorted(map(_digest, gone))
        for payload in there:
            assert await hub.get_page(_digest(payload), bytes_max=BYTES_MAX) == payload

    @claim
    async def test_namespaces_do_not_read_each_others_contracts(self, hub: ContractHub) -> None:
        """A hub with another namespace reads neither the index nor the pages."""
        stranger = self.make_store_of_a_stranger(hub)
        await hub.put_page(_digest(PAYLOAD), PAYLOAD, keep_s=KEEP_S)
        assert await _swaps(hub, b"ours", over=None)
        assert await stranger.get_page(_digest(PAYLOAD), bytes_max=BYTES_MAX) is None
        assert await stranger.read_index(bytes_max=BYTES_MAX) is None
        assert await _swaps(stranger, b"theirs", over=None)
        assert await hub.read_index(bytes_max=BYTES_MAX) == b"ours"
        await stranger.close()

    async def _reads(self, hub: ContractHub, payload: bytes) -> None:
        """Asserts that `hub` reads `payload` as the index, at once or within `patience_s`."""
        read = await hub.read_index(bytes_max=BYTES_MAX)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                while read != payload:
                    await asyncio.sleep(POLL_S)
                    read = await hub.read_index(bytes_max=BYTES_MAX)
        assert read == payload


def _digest(payload: bytes) -> str:
    return sha256(payload).hexdigest()


async def _swaps(hub: ContractStore, payload: bytes, *, over: bytes | None) -> bool:
    return await hub.swap_index(payload, over=over, bytes_max=BYTES_MAX, keep_s=KEEP_S)
