"""Modules that have moved, importable under their former names with a warning.

A program that imports a former name gets the module itself, not a copy: its classes are the same objects under both
names. The finder stands last on `sys.meta_path`, so it is asked only for names that no file has, and every import that
does not fail costs what it did.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import MappingProxyType, ModuleType
from typing import Final

MOVED: Final = MappingProxyType(
    {
        "reconverge.bulletin": "reconverge.remote_settings.poller",
        "reconverge.calendar_windows": "reconverge.limit.calendar",
        "reconverge.declaration": "reconverge.limit.quotas",
        "reconverge.diagnosis": "reconverge.hub.diagnosis",
        "reconverge.grammar": "reconverge.limit.grammar",
        "reconverge.hub_clock": "reconverge.hub.clock",
        "reconverge.hubs": "reconverge.hub.registry",
        "reconverge.integrations.addresses": "reconverge.integrations.web.request.addresses",
        "reconverge.integrations.django_cache": "reconverge.integrations.django.cache",
        "reconverge.integrations.django_exempt": "reconverge.integrations.django.exemptions",
        "reconverge.integrations.django_request": "reconverge.integrations.django.request",
        "reconverge.integrations.django_settings": "reconverge.integrations.django.settings",
        "reconverge.integrations.fields": "reconverge.integrations.web.fields",
        "reconverge.integrations.flask_limiter_words": "reconverge.integrations.flask.flask_limiter_config",
        "reconverge.integrations.flask_request": "reconverge.integrations.flask.request",
        "reconverge.integrations.guard": "reconverge.integrations.web.guard",
        "reconverge.integrations.keys": "reconverge.integrations.web.request.keys",
        "reconverge.integrations.limits_book": "reconverge.integrations.dropin.storage",
        "reconverge.integrations.outcome": "reconverge.integrations.web.outcome",
        "reconverge.integrations.outgoing": "reconverge.integrations.clients.outgoing",
        "reconverge.integrations.paths": "reconverge.integrations.web.request.paths",
        "reconverge.integrations.prices": "reconverge.integrations.web.costs",
        "reconverge.integrations.request": "reconverge.integrations.web.request.request",
        "reconverge.integrations.rules": "reconverge.integrations.web.rules",
        "reconverge.kinds": "reconverge.limit.checks",
        "reconverge.margin": "reconverge.limit.checks",
        "reconverge.merge_rule": "reconverge.hub.merge_rule",
        "reconverge.names": "reconverge.limit.checks",
        "reconverge.orders": "reconverge.remote_settings.signed",
        "reconverge.plain": "reconverge.hub.json_codec",
        "reconverge.process": "reconverge.runtime.process",
        "reconverge.publication": "reconverge.remote_settings.publisher",
        "reconverge.report": "reconverge.hub.report",
        "reconverge.reservation": "reconverge.limiter.reservation",
        "reconverge.stake": "reconverge.hub.headroom",
        "reconverge.trial": "reconverge.hub.checking.probe",
        "reconverge.waiting": "reconverge.limiter.waiters",
    }
)
"""Former names of modules that documents have named, and where those are now. They go with version 1.0."""


class FormerNames(MetaPathFinder, Loader):
    """Finds modules by their former names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  # the import system passes it
        target: ModuleType | None = None,  # noqa: ARG002  # likewise
    ) -> ModuleSpec | None:
        """A specification of the module that had this name; None for any other name."""
        return spec_from_loader(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the moved module in the place of the new, empty one, which is what the import then returns."""
        former = module.__name__
        now = MOVED[former]
        warnings.warn(f"the module {former} has moved: import {now}", DeprecationWarning, stacklevel=2)
        sys.modules[former] = import_module(now)


def keep_former_names() -> None:
    """Have former names found from now on; calling it again changes nothing."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.append(FormerNames())
