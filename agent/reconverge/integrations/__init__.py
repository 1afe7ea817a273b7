"""Limits in applications: what needs no framework is here, and each framework has a module of its own."""

from reconverge.integrations.addresses import Addresses
from reconverge.integrations.guard import Guard, GuardStats
from reconverge.integrations.keys import (
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
from reconverge.integrations.outcome import OUTCOME, Outcome, RateLimited, Refusal, Ruling
from reconverge.integrations.request import PlainRequest, Request, Response
from reconverge.integrations.rules import SPENT, Rule
from reconverge.integrations.words import GuardSettings

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
    "together",
]
