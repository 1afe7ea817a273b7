"""The console: pages on which operators see a whole fleet, mounted in any ASGI application."""

from reconverge.integrations.console.app import console
from reconverge.integrations.console.contracts import Recording

__all__ = ["Recording", "console"]
