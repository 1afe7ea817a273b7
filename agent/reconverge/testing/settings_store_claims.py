"""Tests of the promises of `reconverge.hub.SettingsStore`, for the tests of such a hub to inherit."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final, Protocol
from unittest import SkipTest

from reconverge.hub.port import SettingsStore
from reconverge.testing.claims.scenes.trial import Tried, claims_by, run_and_close

PAYLOAD: Final = bytes(range(256))
BYTES_MAX: Final = 1000
KEEP_S: Final = 600.0
POLL_S: Final = 0.01


class ClosableSettingsStore(SettingsStore, Protocol):
    """A store of settings that can be closed."""

    async def close(self) -> None: ...


@claims_by
def claim(suite: SettingsStoreClaims, tried: Tried) -> None:
    """Tries a claim on a new hub."""
    hub = suite.make_settings_store()
    run_and_close(tried(hub), [hub])


class SettingsStoreClaims:
    """Tests of the promises of every settings store; to be inherited beside `HubClaims`, or alone.

    A subclass overrides `make_settings_store`, which returns the hub to test. A post may take a while to arrive: the
    claims wait for it.
    """

    patience_s: ClassVar[float] = 30.0
    """The longest time until a post can be read."""

    def make_settings_store(self) -> ClosableSettingsStore:
        """Returns a hub at which nothing was posted. Called outside of any event loop, once for each claim."""
        raise NotImplementedError("define which hub to test: def make_settings_store(self) -> Hub")

    def join_settings_store(self, hub: ClosableSettingsStore) -> ClosableSettingsStore:
        """Returns another object for the same hub, as another process would have; by default `hub` itself."""
        return hub

    def make_settings_store_of_a_stranger(self, hub: ClosableSettingsStore) -> ClosableSettingsStore:
        """Returns a hub on the same server, with another namespace."""
        raise SkipTest("the suite has no make_settings_store_of_a_stranger; define it to test another namespace")

    @claim
    async def test_before_anything_is_posted_nothing_is_read(self, hub: ClosableSettingsStore) -> None:
        """An empty store returns None, not an empty payload."""
        assert await hub.read(bytes_max=BYTES_MAX) is None

    @claim
    async def test_what_was_posted_last_is_read_by_all(self, hub: ClosableSettingsStore) -> None:
        """Every reader gets the newest post unchanged, any bytes, also a reader that connects later."""
        other = self.join_settings_store(hub)
        for payload in (b"first", PAYLOAD, b"third", b"third"):
            await hub.post(payload, keep_s=KEEP_S)
            for reader in (hub, other, other):
                await self._reads(reader, payload)
        late = self.join_settings_store(hub)
        await self._reads(late, b"third")
        await late.close()
        await other.close()

    @claim
    async def test_every_reader_may_post(self, hub: ClosableSettingsStore) -> None:
        """The newest post counts, from whichever connection it comes."""
        other = self.join_settings_store(hub)
        for poster, payload in ((hub, b"one"), (other, b"two"), (hub, b"three")):
            await poster.post(payload, keep_s=KEEP_S)
            await self._reads(hub, payload)
            await self._reads(other, payload)
        await other.close()

    @claim
    async def test_something_too_long_is_seen_to_be_that(self, hub: ClosableSettingsStore) -> None:
        """A payload of `bytes_max` bytes is read whole; of a longer one, at least `bytes_max + 1` bytes are read."""
        await hub.post(b"x" * BYTES_MAX, keep_s=KEEP_S)
        await self._reads(hub, b"x" * BYTES_MAX)
        await hub.post(b"y" * 40 * BYTES_MAX, keep_s=KEEP_S)
        await self._reads(hub, b"y" * (BYTES_MAX + 1), at_least=True)

    @claim
    async def test_namespaces_do_not_read_each_others(self, hub: ClosableSettingsStore) -> None:
        """A hub with another namespace does not read the post."""
        stranger = self.make_settings_store_of_a_stranger(hub)
        await hub.post(PAYLOAD, keep_s=KEEP_S)
        await self._reads(hub, PAYLOAD)
        assert await stranger.read(bytes_max=BYTES_MAX) is None
        await stranger.post(b"theirs", keep_s=KEEP_S)
        await self._reads(stranger, b"theirs")
        assert await hub.read(bytes_max=BYTES_MAX) == PAYLOAD
        await stranger.close()

    async def _reads(self, hub: ClosableSettingsStore, payload: bytes, *, at_least: bool = False) -> None:
        """Waits until `hub` reads `payload`, or, with `at_least`, a longer payload that begins with it."""
        read: bytes | None = None
        try:
            async with asyncio.timeout(self.patience_s):
                while read != payload:
                    read = await hub.read(bytes_max=BYTES_MAX)
                    if at_least and read is not None and read.startswith(payload):
                        return
                    if read != payload:
                        await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"{payload[:20]!r}... was posted, and {(read or b'')[:20]!r}... is read") from None
