"""A storage for the library `limits` that counts in this process. Importing it registers `reconverge+redis://`.

  import reconverge.integrations.limits_storage

  limiter = Limiter(get_remote_address, app=app, storage_uri="reconverge+redis://localhost:6379/0")

Flask-Limiter, slowapi and all other users of that library with a storage URI then decide from this process's memory.
Settings may be in the URI's query or in the storage options: see `StorageLimits` and `shared_agent.settings_at`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconverge.errors import MissingExtra, ReconvergeError

try:
    import limits.storage.base as library
    from limits.aio.storage.base import Storage as WaitingStorage
except ModuleNotFoundError as error:
    raise MissingExtra(__name__, error.name or "limits", "limits") from None

from reconverge.integrations.dropin.misplaced import refuse_in
from reconverge.integrations.dropin.shared_agent import BEHIND
from reconverge.integrations.dropin.storage import FIXED, MOVING, SCHEMES, SLIDING, StorageLimits
from reconverge.integrations.limits_storage_aio import AsyncReconvergeStorage

if TYPE_CHECKING:
    from limits.storage.base import SlidingWindowCounterSupport, TimestampedSlidingWindow
else:

    class Missing:
        """An empty class in place of base classes that the library `limits` lacks before versions 4.1 and 4.2."""

    SlidingWindowCounterSupport = getattr(library, "SlidingWindowCounterSupport", Missing)
    TimestampedSlidingWindow = getattr(library, "TimestampedSlidingWindow", object)

__all__ = ["AsyncReconvergeStorage", "ReconvergeStorage"]


class ReconvergeStorage(
    library.Storage, library.MovingWindowSupport, SlidingWindowCounterSupport, TimestampedSlidingWindow
):
    """A storage whose counts an agent of this process keeps, and shares with other processes through its hub.

    No method fails because of the hub. `check` returns whether the hub answers. A request on a small quota may wait
    some milliseconds for the hub's answer: see `reconverge.integrations.dropin.asking`.

    Raises:
        InvalidSetting, UnknownHub, MissingExtra: see `shared_agent.settings_at`.
    """

    STORAGE_SCHEME = [  # noqa: RUF012  # as the library types it
        *(f"reconverge+{scheme}" for scheme in SCHEMES),
        *(f"{scheme}{BEHIND}" for scheme in SCHEMES),  # an error that shows the scheme to write
    ]

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.book = StorageLimits(uri, options)

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        problem = "is for limits.aio, and would be waited for by nothing here; leave async+ out of the storage URI"
        refuse_in("limits.strategies", kind, WaitingStorage, problem)
        undecided: bool = NotImplemented  # as without this method
        return undecided

    @property
    def storage(self) -> str:
        """Returns the URL of the hub, without its password; `flask limiter config` shows it."""
        return self.book.agent.stats().hub

    @property
    def base_exceptions(self) -> type[Exception]:
        """Returns the class of errors for a caller's mistakes, such as a negative cost."""
        return ReconvergeError

    def incr(self, key: str, expiry: int, amount: int = 1, *, elastic_expiry: bool = False) -> int:  # noqa: ARG002
        """Counts as `StorageLimits.count` does. `elastic_expiry` has no effect: no call extends a window."""
        return self.book.count(key, expiry, amount)

    def get(self, key: str) -> int:
        return self.book.used(key)

    def get_expiry(self, key: str) -> float:
        """Returns when the fixed window ends, in seconds since 1970; the present time if none is open."""
        return self.book.now() + self.book.resets_in(key)

    def check(self) -> bool:
        return self.book.check()

    def reset(self) -> int | None:
        return self.book.forget_all()

    def clear(self, key: str) -> None:
        """Resets a key; versions up to 4.8 of the library reset sliding windows by this, too."""
        self.book.forget((FIXED, MOVING, SLIDING), key)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return self.book.admits(MOVING, key, limit, expiry, amount)

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Returns when the oldest charge that still counts was made, in seconds since 1970, and the count."""
        return self.book.moving_window(key, limit, expiry)

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return self.book.admits(SLIDING, key, limit, expiry, amount)

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return self.book.sliding_window(key, expiry)

    def clear_sliding_window(self, key: str, expiry: int) -> None:  # noqa: ARG002
        self.book.forget((SLIDING,), key)
