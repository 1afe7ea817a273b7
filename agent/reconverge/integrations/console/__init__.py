"""The console: web pages that show operators a whole fleet; it can be mounted in any ASGI application."""

from reconverge.integrations.console.app import console
from reconverge.integrations.console.contracts import Recording
from reconverge.integrations.customer_links import customer_token

__all__ = ["Recording", "console", "customer_token"]
