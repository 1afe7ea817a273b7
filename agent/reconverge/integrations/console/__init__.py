"""The console: pages on which operators see a whole fleet, mounted in any ASGI application."""

from reconverge.integrations.console.app import console

__all__ = ["console"]
