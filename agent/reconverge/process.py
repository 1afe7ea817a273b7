"""What happens to agents when the process forks or ends."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import multiprocessing.util
import os
import signal
import threading
import weakref
from types import FrameType
from typing import Final, Protocol

logger = logging.getLogger("reconverge")

LAST_WORDS_S: Final = 2.0
"""The longest that each agent may take to say its last words when the process ends."""
SIGTERM_GRACE_S: Final = 5.0
"""The longest that a process lives on after SIGTERM, whatever its threads do."""
SIGTERM_STATUS: Final = 128 + signal.SIGTERM


class Stoppable(Protocol):
    """An agent, as far as this file is concerned."""

    def start_over_after_fork(self) -> None:
        """Forget the parent's lines, counts and connections."""
        ...

    def stop_for_good(self, timeout_s: float) -> None:
        """Say the last words; the process ends."""
        ...


_agents: weakref.WeakSet[Stoppable] = weakref.WeakSet()
_hooked_pid = 0
_ending_pid = 0
"""The process that SIGTERM has told to end already."""


def register(agent: Stoppable, *, sigterm: bool) -> None:
    """Have `agent` told of forks, and let it say its last words when this process ends, `kill -9` excepted.

    SIGTERM is only handled where nobody else does: it then ends the main thread as `sys.exit` would.
    """
    global _hooked_pid  # noqa: PLW0603  # hooks belong to the process, and so does knowing about them
    if not _hooked_pid:
        # Threads that hold locks do not survive a fork, and connections must not.
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(stop_all)
    _agents.add(agent)
    if _hooked_pid != os.getpid():
        _hooked_pid = os.getpid()
        if multiprocessing.parent_process() is not None:
            # Such a process leaves by os._exit, past atexit.
            multiprocessing.util.Finalize(None, stop_all, exitpriority=100)
    if sigterm and threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_sigterm)


def stop_all() -> None:
    """Have every agent of this process say its last words."""
    for agent in list(_agents):
        try:
            agent.stop_for_good(LAST_WORDS_S)
        except Exception:
            logger.exception("reconverge: an agent could not be stopped")


def _on_sigterm(_number: int, _frame: FrameType | None) -> None:
    global _ending_pid  # noqa: PLW0603  # a process ends once
    if _ending_pid == os.getpid():
        return  # whoever says it again would only interrupt the last words, which do not take long
    _ending_pid = os.getpid()
    # What this signal interrupted may hold the very locks that the last words need; unwinding lets go of them.
    threading.Thread(target=_end_at_last, name="reconverge-sigterm", daemon=True).start()
    raise SystemExit(SIGTERM_STATUS)


def _end_at_last() -> None:
    """End a process whose other threads would keep it alive: without a handler SIGTERM would have, too."""
    if not threading.Event().wait(SIGTERM_GRACE_S):
        stop_all()
        os._exit(SIGTERM_STATUS)


def _after_fork() -> None:
    for agent in list(_agents):
        agent.start_over_after_fork()
