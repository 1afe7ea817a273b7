"""Never past the line."""

from __future__ import annotations

from reconverge.policies.view import View


def strict(view: View) -> int:
    """The line and not a request more.

    Never over-admits, whatever the network does; refuses early when traffic moves faster than exchanges.
    """
    return view.line
