"""The base class of `Limits` for FastAPI, Flask and aiohttp: it switches limits off, resets them, and finds keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.outcome import Outcome
from reconverge.integrations.web.rules import checked_flag


class LimitsOfApp:
    """The base class of `Limits` for FastAPI, Flask and aiohttp."""

    guard: Guard

    @property
    def enabled(self) -> bool:
        """Whether the limits decide at all; a test can set it to False."""
        return self.guard.enabled

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        self.guard.enabled = checked_flag("enabled", enabled)

    def reset(self) -> None:
        """Forgets all counts, for tests; see `Agent.reset`."""
        self.guard.agent.reset()

    def request_filter(self, function: Any) -> Any:
        """Exempts requests for which `function` returns true from all limits. Can be used as a decorator."""
        return self.guard.request_filter(function)

    def key_of(self, request: Any, name: str | None = None) -> str | None:
        """Returns the key under which the limit `name` has counted a framework's request, for `RateLimiter.reset`.

        Without a name, returns the key of the first limit. Returns None if no such limit has decided about the request.
        """
        keys = (outcome.key_of(name) for outcome in self._outcomes_of(request))
        return next((key for key in keys if key is not None), None)

    def _outcomes_of(self, request: Any) -> Sequence[Outcome]:
        """Returns the outcomes of a request so far, in the order of the decisions."""
        raise NotImplementedError
