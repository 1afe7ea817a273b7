"""The part that `Limits` of FastAPI, Flask and aiohttp have in common: they switch, reset and name the limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.outcome import Outcome
from reconverge.integrations.web.rules import checked_flag


class LimitsOfApp:
    """The base class of the frameworks' `Limits`."""

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
        """Returns the key that a framework's request was counted by, for `RateLimiter.reset`: of the limit `name`.

        Without a name, it is the key of the first limit. Returns None if no such limit has decided about the request.
        """
        keys = (outcome.key_of(name) for outcome in self._outcomes_of(request))
        return next((key for key in keys if key is not None), None)

    def _outcomes_of(self, request: Any) -> Sequence[Outcome]:
        """Returns the outcomes of a request so far, in the order of the decisions."""
        raise NotImplementedError
