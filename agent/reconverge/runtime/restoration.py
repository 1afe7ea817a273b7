"""Detects that this process was restored from an image of its memory, so that it may be one of several copies."""

# Theory of operation.
#
# Copies of one process have the same name at the hub, count on from the same numbers and hold the same allowances. A
# process cannot see how often it was copied, but two facts show that it was restored:
#
# - The wall clock goes forward at once, while the clock that counts from the machine's start, and goes on while the
#   machine is suspended, does not. This happens in a virtual machine that is restored from a snapshot, and in a process
#   that CRIU restores. A wall clock that is set forward by hand, or by NTP in one step, looks the same; the price of
#   such a mistake is one exchange without allowances. Where no clock goes on during a suspension, every suspension
#   looks like a restoration, too.
# - The boot id has changed while the process goes on, as after CRIU has moved the process to another machine.
#
# Neither fact shows two copies that go on within seconds of the image on one machine. Nor can the hub tell them by a
# second batch with the same number and name: a network that delivers a batch twice looks the same, and a node that
# opened a new account then would report again what the hub has counted.

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from reconverge.clock import SECOND_NS, SystemClock

JUMP_NS: Final = 5 * SECOND_NS
"""The nanoseconds that the wall clock may gain on the monotonic clock between two checks. A larger gain counts as the
sign of a restoration."""
LOOK_NS: Final = SECOND_NS
"""The least time between two reads of the boot id, in nanoseconds."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Returns the boot id, which is another after each start of the machine; "" on a system without boot ids."""
    try:
        return BOOT_ID.read_text()
    except OSError:
        return ""


class Restorations:
    """Detects whether the process was restored from an image of its memory since the last check."""

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int] = SystemClock.wall_ns,
        since_start_ns: Callable[[], int] = SystemClock.monotonic_ns,
        boot_id: Callable[[], str] = read_boot_id,
    ) -> None:
        self._wall_ns, self._since_start_ns, self._boot_id = wall_ns, since_start_ns, boot_id
        self._looked_ns = since_start_ns()
        self._ahead_ns = wall_ns() - self._looked_ns
        self._seen_boot_id = boot_id()

    def sign(self) -> str:
        """Returns a phrase that says how a restoration since the last call was noticed; "" if none was noticed."""
        now_ns = self._since_start_ns()
        ahead_ns = self._wall_ns() - now_ns
        gained_ns, self._ahead_ns = ahead_ns - self._ahead_ns, ahead_ns
        if gained_ns > JUMP_NS:
            return f"the wall clock went forward by {gained_ns / SECOND_NS:.0f} s at once"
        if now_ns - self._looked_ns < LOOK_NS:
            return ""
        self._looked_ns = now_ns
        before, self._seen_boot_id = self._seen_boot_id, self._boot_id()
        return "" if before == self._seen_boot_id else "the boot id of the machine has changed"
