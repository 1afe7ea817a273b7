"""Tests of the promises of `reconverge.hub.ContractStore`, for the tests of such a hub to inherit."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import sha256
from typing import Final

from reconverge.hub.port import ContractStore, Hub
from reconverge.testing.claims.scenes.scene import Scene
from reconverge.testing.claims.scenes.trial import Trial, claim

BYTES_MAX: Final = 1000
KEEP_S: Final = 600.0
PAYLOAD: Final = bytes(range(256))
PAGES: Final = tuple(b"page %d" % number for number in range(40))
WRITERS: Final = 8
POLL_S: Final = 0.01


def store(hub: Hub) -> ContractStore:
    """Returns `hub`. Raises AssertionError unless it is a store of contracts."""
    assert isinstance(hub, ContractStore), "the hub is no reconverge.hub.ContractStore"
    return hub


class ContractStoreClaims(Trial):
    """Tests of the promises of every store of contracts; to be inherited beside `HubClaims`, or alone.

    `HubClaims` describes the methods to define.
    """

    @claim
    async def test_before_anything_is_put_nothing_is_there(self, scene: Scene) -> None:
        """An empty store returns None for the index and for a page, not an empty payload."""
        hub, digest = store(scene.hub), _digest(PAYLOAD)
        assert await hub.read_index(bytes_max=BYTES_MAX) is None
        assert await hub.get_page(digest, bytes_max=BYTES_MAX) is None
        assert await hub.keep_pages([digest], keep_s=KEEP_S) == [digest]
        assert await hub.keep_pages([], keep_s=KEEP_S) == []

    @claim
    async def test_an_index_is_swapped_for_what_was_read_and_for_nothing_else(self, scene: Scene) -> None:
        """A writer replaces the index only if it names the present one, or None if there is none."""
        hub, other = store(scene.hub), store(scene.another_hub())
        assert not await _swaps(hub, b"first", over=b"something")
        assert await hub.read_index(bytes_max=BYTES_MAX) is None
        assert await _swaps(hub, b"first", over=None)
        await self._reads_index(other, b"first")
        for over in (None, b"", b"firs", b"first ", PAYLOAD):
            assert not await _swaps(other, b"second", over=over)
        assert await hub.read_index(bytes_max=BYTES_MAX) == b"first"
        assert await _swaps(other, PAYLOAD, over=b"first")
        await self._reads_index(hub, PAYLOAD)
        assert await _swaps(hub, b"first", over=PAYLOAD)
        await self._reads_index(other, b"first")

    @claim
    async def test_of_writers_at_once_one_is_in_time(self, scene: Scene) -> None:
        """Of several writers at the same time exactly one succeeds.

        All other writers get False, and all readers get the index of the writer that has succeeded.
        """
        hub, writers = store(scene.hub), [store(scene.another_hub()) for _ in range(WRITERS)]
        over: bytes | None = None
        for turn in range(3):
            payloads = [b"%d of %d" % (turn, number) for number in range(WRITERS)]
            done = await asyncio.gather(
                *(_swaps(writer, payload, over=over) for writer, payload in zip(writers, payloads, strict=True))
            )
            assert sum(done) == 1
            over = payloads[done.index(True)]
            await self._reads_index(hub, over)

    @claim
    async def test_a_page_is_read_as_it_was_put_by_all(self, scene: Scene) -> None:
        """Pages of any bytes can be put and read repeatedly, each under its digest, from every object."""
        hub, other = store(scene.hub), store(scene.another_hub())
        for payload in (*PAGES, PAYLOAD, b"", *PAGES):
            await hub.put_page(_digest(payload), payload, keep_s=KEEP_S)
        for payload in (*PAGES, PAYLOAD, b""):
            assert await other.get_page(_digest(payload), bytes_max=BYTES_MAX) == payload
        assert await other.read_index(bytes_max=BYTES_MAX) is None

    @claim
    async def test_pages_and_indexes_that_are_too_long_are_seen_to_be_that(self, scene: Scene) -> None:
        """A payload of `bytes_max` bytes is read whole; of a longer one a reader gets the first `bytes_max + 1` bytes.

        An index that is too long can be replaced.
        """
        hub = store(scene.hub)
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
    async def test_pages_that_are_not_there_are_named(self, scene: Scene) -> None:
        """The store returns the digests of the pages that it lacks; the other pages can be read afterwards."""
        hub = store(scene.hub)
        there, gone = PAGES[::2], PAGES[1::2]
        for payload in there:
            await hub.put_page(_digest(payload), payload, keep_s=KEEP_S)
        missing = await hub.keep_pages([_digest(payload) for payload in PAGES], keep_s=2 * KEEP_S)
        assert sorted(missing) == sorted(map(_digest, gone))
        for payload in there:
            assert await hub.get_page(_digest(payload), bytes_max=BYTES_MAX) == payload

    @claim
    async def test_namespaces_do_not_read_each_others_contracts(self, scene: Scene) -> None:
        """A hub with another namespace reads neither the index nor the pages."""
        hub, stranger = store(scene.hub), store(scene.keep(self.make_stranger(scene.hub)))
        await hub.put_page(_digest(PAYLOAD), PAYLOAD, keep_s=KEEP_S)
        assert await _swaps(hub, b"ours", over=None)
        assert await stranger.get_page(_digest(PAYLOAD), bytes_max=BYTES_MAX) is None
        assert await stranger.read_index(bytes_max=BYTES_MAX) is None
        assert await _swaps(stranger, b"theirs", over=None)
        assert await hub.read_index(bytes_max=BYTES_MAX) == b"ours"

    async def _reads_index(self, hub: ContractStore, payload: bytes) -> None:
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
