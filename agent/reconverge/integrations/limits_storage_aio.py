"""A storage for `limits.aio`, under `async+reconverge+redis://`, which shares its counts with `limits_storage`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from reconverge.errors import MissingExtra, ReconvergeError

try:
    import limits.aio.storage.base as library
    from limits.storage.base import Storage as PlainStorage
except ModuleNotFoundError as error:
    raise MissingExtra(__name__, error.name or "limits", "limits") from None

from reconverge.integrations.dropin.misplaced import refuse_in
from reconverge.integrations.dropin.shared_agent import BEHIND
from reconverge.integrations.dropin.storage import FIXED, MOVING, SCHEMES, SLIDING, StorageLimits

if TYPE_CHECKING:
    from limits.aio.storage.base import SlidingWindowCounterSupport
    from limits.storage.base import TimestampedSlidingWindow
else:
    import limits.storage.base

    class Missing:
        """An empty class in place of base classes that the library `limits` lacks before versions 4.1 and 4.2."""

    SlidingWindowCounterSupport = getattr(library, "SlidingWindowCounterSupport", Missing)
    TimestampedSlidingWindow = getattr(limits.storage.base, "TimestampedSlidingWindow", object)


class AsyncReconvergeStorage(
    library.Storage, library.MovingWindowSupport, SlidingWindowCounterSupport, TimestampedSlidingWindow
):
    """An asyncio version of `ReconvergeStorage`. Storages of both classes share counts if their URI is the same."""

    STORAGE_SCHEME = [  # noqa: RUF012  # as the library types it
        *(f"async+reconverge+{scheme}" for scheme in SCHEMES),
        *(f"async+{scheme}{BEHIND}" for scheme in SCHEMES),  # as in `limits_storage`
    ]

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.book = StorageLimits(uri, options)

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        problem = "is for strategies that do not wait, and limits.aio has others; write async+ before the storage URI"
        refuse_in("limits.aio.strategies", kind, PlainStorage, problem)
        undecided: bool = NotImplemented  # as without this method
        return undecided

    @property
    def storage(self) -> str:
        return self.book.agent.stats().hub

    @property
    def base_exceptions(self) -> type[Exception]:
        return ReconvergeError

    async def incr(self, key: str, expiry: int, amount: int = 1, *, elastic_expiry: bool = False) -> int:  # noqa: ARG002
        return await self.book.count_async(key, expiry, amount)

    async def get(self, key: str) -> int:
        return self.book.used(key)

    async def get_expiry(self, key: str) -> float:
        return self.book.now() + self.book.resets_in(key)

    async def check(self) -> bool:
        """Returns whether the hub answers: calls `StorageLimits.check` in a thread, because that waits."""
        return await asyncio.to_thread(self.book.check)

    async def reset(self) -> int | None:
        return self.book.forget_all()

    async def clear(self, key: str) -> None:
        """Resets a key; versions up to 4.8 of the library reset sliding windows by this, too."""
        self.book.forget((FIXED, MOVING, SLIDING), key)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await self.book.admits_async(MOVING, key, limit, expiry, amount)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        return self.book.moving_window(key, limit, expiry)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return await self.book.admits_async(SLIDING, key, limit, expiry, amount)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return self.book.sliding_window(key, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:  # noqa: ARG002
        self.book.forget((SLIDING,), key)
