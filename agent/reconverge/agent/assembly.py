"""Makes the parts of one agent: its hub, its kernel, and the reader of the settings that are published for it.

This is the one place that knows how these parts are made and connected; `Agent` uses them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from secrets import token_bytes
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from reconverge.agent.notice import log_of_object, log_reentry
from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import InvalidSetting
from reconverge.exchange.thread_runner import refuse_eventlet
from reconverge.hub.fallback.opening import open_hubs
from reconverge.hub.hashing import VARIABLE as KEY_SECRET
from reconverge.hub.hashing import KeyHasher
from reconverge.hub.port import Hub, SettingsStore
from reconverge.hub.registry import MEMORY, UNKNOWN_OPTION, Credentials, HubSettings
from reconverge.kernel import HASH_KEY_BYTES, Kernel, first_odd_cell
from reconverge.published.envelope import VARIABLE, Secrets, Verifier
from reconverge.published.settings import SETTINGS, FleetSettings
from reconverge.published.settings_reader import SettingsReader
from reconverge.settings import AgentSettings

OF_LIMITS: Final = ("policy", "max_overshoot", "cold_allowance", "scarce", "switch", "in_doubt")
"""Settings of an agent for its limits."""
_shared_kernels: dict[tuple[str, str], Kernel] = {}
"""The kernels of `memory://NAME`, by name and namespace; all agents of this process with one NAME share a kernel."""


class Parts(NamedTuple):
    """The parts of one agent: the hub with which it exchanges, and the kernel by which it decides."""

    hub: Hub | None
    """The hub; None for `memory://`, with which no node exchanges."""
    hub_name: str
    """The hub's name in messages and statistics, without passwords."""
    kernel: Kernel
    hasher: KeyHasher | None
    """Hashes keys before the hub sees them; None without a secret."""


def assemble(
    settings: AgentSettings,
    hub: str | Hub,
    fallback: str | Hub | None,
    clock: Clock,
    *,
    require_hub: bool,
    region_share: float,
    key_secret: str | bytes | None,
    credentials: Credentials | None,
) -> Parts:
    """Makes the parts of an agent: its kernel, and its hub with the fallback, to which it does not connect yet.

    Raises InvalidSetting, UnknownHub, EventletPatched.
    """
    hasher = hasher_of(key_secret, namespace=settings.namespace)
    try:
        opened = open_hubs(
            hub,
            fallback,
            HubSettings(settings.namespace, settings.exchange_timeout, credentials),
            clock,
            odd_cell=first_odd_cell,
            hasher=hasher,
        )
    except InvalidSetting as error:
        raise _of_agent(error) from None
    if opened.hub is not None:
        refuse_eventlet()
    kernel = Kernel(
        clock,
        namespace=settings.namespace,
        interval_ns=round(settings.sync_interval * SECOND_NS),
        interval_min_ns=round(settings.min_sync_interval * SECOND_NS),
        keys_max=settings.max_keys,
        key_bytes_max=settings.key_bytes_max,
        shards=1 if opened.hub is None else opened.hub.shards,
        alone=opened.hub is None,
        lease_ns=None if settings.lease_ttl is None else round(settings.lease_ttl * SECOND_NS),
        lease_min_ns=round(settings.lease_min * SECOND_NS),
        new_keys_max=settings.new_keys_max,
        asks_max=settings.asks_max,
        hash_key=token_bytes(HASH_KEY_BYTES),
    )
    if opened.hub is None:
        for name, value, none in (("require_hub", require_hub, False), ("region_share", region_share, 1.0)):
            if value != none:
                raise InvalidSetting(name, value, f"needs a hub, and {MEMORY}:// has none; name one")
    kernel.region_ppm = settings.region_ppm
    kernel.silence_max_ns = round(settings.max_silence * SECOND_NS)
    kernel.on_reentry = log_reentry
    kernel.on_object = log_of_object
    shared_name = urlsplit(hub).netloc if isinstance(hub, str) and opened.hub is None else ""
    if shared_name:
        kernel = _shared_kernels.setdefault((shared_name, settings.namespace), kernel)
    return Parts(opened.hub, opened.name, kernel, hasher)


def _of_agent(error: InvalidSetting) -> InvalidSetting:
    """Returns the error about a URL, with advice if its unknown option is a setting of the agent."""
    option = error.problem.partition(f"{UNKNOWN_OPTION}: ")[2].partition(";")[0]
    if option not in (*AgentSettings.__annotations__, *OF_LIMITS):
        return error
    problem = f"{error.problem}; {option} is a setting of the agent: write Agent('redis://...', {option}=...)"
    return InvalidSetting(error.name, error.value, problem)


def hasher_of(secret: str | bytes | None, *, namespace: str) -> KeyHasher | None:
    """Returns a hasher of keys with `secret` or, if that is None, with the environment's secret; None without either.

    Raises InvalidSetting for an invalid secret.
    """
    if secret is not None:
        return KeyHasher(secret, namespace=namespace)
    said = os.environ.get(KEY_SECRET)
    return None if said is None else KeyHasher(said, namespace=namespace, name=KEY_SECRET)


def reader_of(
    secret: str | bytes | Sequence[str | bytes] | None,
    parts: Parts,
    *,
    namespace: str,
    clock: Clock,
    interval_ns: Callable[[], int],
    apply: Callable[[FleetSettings | None], None],
) -> SettingsReader | None:
    """Returns a reader of published settings; None without a secret to verify them, or without a hub.

    It calls `apply` with the settings that it has read. Raises InvalidSetting for an invalid secret, and for a hub that
    cannot store settings.
    """
    name = "settings_secret" if secret else VARIABLE
    secret = secret or os.environ.get(VARIABLE)
    if not secret:
        return None
    secrets = Secrets(secret, name=name)
    if parts.hub is None:
        return None
    if not isinstance(parts.hub, SettingsStore):
        problem = (
            f"the hub {parts.hub_name} stores no published settings, as it is no SettingsStore; leave the secret out"
        )
        raise InvalidSetting("settings_secret", "***", problem)
    return SettingsReader(Verifier(SETTINGS, namespace, secrets), clock, interval_ns=interval_ns, apply=apply)
