"""Rate limits in web applications.

This package exports the parts that need no framework, such as `Guard` and `Rule`; each framework has a module of its
own.
"""

from reconverge.integrations.web.guard import Guard, GuardStats
from reconverge.integrations.web.options import GuardSettings
from reconverge.integrations.web.outcome import OUTCOME, Outcome, RateLimited, Refusal, Ruling
from reconverge.integrations.web.request.addresses import Addresses
from reconverge.integrations.web.request.keys import (
    by_header,
    by_ip,
    by_ip_network,
    by_method,
    by_path_parameter,
    by_route,
    by_user,
    everybody,
    together,
)
from reconverge.integrations.web.request.request import PlainRequest, Request, Response
from reconverge.integrations.web.rules import SPENT, Rule
from reconverge.limiter.certainty import for_any_node

__all__ = [
    "OUTCOME",
    "SPENT",
    "Addresses",
    "Guard",
    "GuardSettings",
    "GuardStats",
    "Outcome",
    "PlainRequest",
    "RateLimited",
    "Refusal",
    "Request",
    "Response",
    "Rule",
    "Ruling",
    "by_header",
    "by_ip",
    "by_ip_network",
    "by_method",
    "by_path_parameter",
    "by_route",
    "by_user",
    "everybody",
    "for_any_node",
    "together",
]
