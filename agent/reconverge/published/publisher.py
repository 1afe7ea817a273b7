"""Publishing settings for a fleet: what is posted now is read first, and replaced only if it can be verified."""

# Theory of operation.
#
# A hub keeps one document per namespace, and the last one that was posted is what nodes read. A publisher with a wrong
# secret would take a valid document away, and put one in its place that no node obeys: nodes that run keep to what is
# in force until it expires, nodes that start later never learn of it, and the publisher would take it for a success.
# So a document that the publisher's secrets do not verify stays where it is, unless the publisher passes `force`.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.hub.port import SettingsStore
from reconverge.limit.quotas import limit_of_quota
from reconverge.published.envelope import PAYLOAD_BYTES_MAX, Rejection, Secrets, UnverifiedDocument
from reconverge.published.settings import SETTINGS, FleetSettings, LimitOverride, Word, seal
from reconverge.published.switch_log import record, turned_between


def renewed(known: FleetSettings | None, namespace: str, *, now_ns: int, expires: int) -> FleetSettings:
    """Returns the settings in force, or empty ones, issued now for until then; its version is that of the moment."""
    now_s, version = now_ns // SECOND_NS, now_ns // MILLISECOND_NS
    if known is None or known.expires <= now_s:
        return FleetSettings(namespace, version, issued=now_s, expires=expires)
    return replace(known, version=version, issued=now_s, expires=expires)


def turned(settings: FleetSettings, word: Word | None, names: Sequence[str] = ()) -> FleetSettings:
    """The same settings with another switch: of all limits, or of those that are named."""
    if not names:
        return replace(settings, switch=word)
    limits: dict[str, LimitOverride] = dict(settings.limits)
    for name in names:
        limits[name] = replace(limits.get(name, LimitOverride()), switch=word)
    return replace(settings, limits={name: each for name, each in limits.items() if each != LimitOverride()})


def unknown_limits(names: Iterable[str], reported: Iterable[str]) -> list[str]:
    """Returns the names that mean no limit that nodes have reported, by quota names: to switch one switches nothing.

    A limit of contracts that counts by further facts is `api/customer.user` at the hub, and means what `api` means.
    """
    known = {limit_of_quota(each) for each in reported}
    return [name for name in names if name not in known and not any(each.startswith(f"{name}/") for each in known)]


async def published(
    store: SettingsStore, secrets: Secrets, namespace: str, *, force: bool = False
) -> FleetSettings | None:
    """The settings at the hub, expired or not; None if it has none, or, with `force`, none that can be verified.

    Raises UnverifiedDocument for what these secrets have not signed, what is for another namespace, and what cannot be
    read; HubUnavailable.
    """
    payload = await store.read(bytes_max=PAYLOAD_BYTES_MAX)
    known = None if payload is None else SETTINGS.opened(payload, secrets, namespace)
    if not isinstance(known, Rejection):
        return known
    if not force:
        raise UnverifiedDocument(known.reason, f"the published document {known.problem}")
    return None


async def publish(
    store: SettingsStore,
    fleet_settings: FleetSettings,
    secrets: Secrets,
    *,
    force: bool = False,
    raise_version: bool = False,
    author: str = "",
) -> FleetSettings:
    """Post settings for all nodes of a namespace, and return what was posted.

    Args:
        store: the hub, opened for the namespace that the settings are for.
        fleet_settings: the settings.
        secrets: the first one signs; what is published now has to be signed with any of them.
        force: replace also what is published now and cannot be verified.
        raise_version: where the version is not above that of what is published, make it one more than that.
        author: the name under which the log of switches lists this change; empty to leave it out of the log.

    Raises:
        UnverifiedDocument: as of `published`.
        InvalidSetting: the version is not above the one that is published, so no node would obey.
        InvalidDocument: no node would obey, whatever is published.
        HubUnavailable: the hub cannot be asked, or does not take it.
    """
    known = await published(store, secrets, fleet_settings.namespace, force=force)
    before = 0 if known is None else known.version
    if raise_version:
        fleet_settings = replace(fleet_settings, version=max(fleet_settings.version, before + 1))
    elif fleet_settings.version <= before:
        problem = f"is not above {before}, which is published; no node would obey"
        raise InvalidSetting("version", fleet_settings.version, problem)
    await store.post(seal(fleet_settings, secrets), keep_s=fleet_settings.expires - fleet_settings.issued)
    if author:
        await record(store, fleet_settings.namespace, secrets, turned_between(known, fleet_settings, author))
    return fleet_settings
