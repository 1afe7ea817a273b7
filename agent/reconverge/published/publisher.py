"""Publishes settings for a fleet, but first reads those at the hub: they are replaced only if they can be verified."""

# Theory of operation.
#
# A hub stores one document per namespace, and nodes read the last one posted. A publisher with a wrong secret would
# replace a valid document by one that no node accepts: running nodes keep the settings in force until these expire,
# nodes that start later never get them, and the publisher would see a success. So a document that the publisher's
# secrets do not verify stays at the hub, unless the publisher passes `force`.

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
    """Returns a copy of the settings `known` with new times and a new version; without settings if `known` has expired.

    It is issued now and expires at `expires`, in seconds since 1970; the version is the present time in milliseconds.
    `known` is None if nothing is published.
    """
    now_s, version = now_ns // SECOND_NS, now_ns // MILLISECOND_NS
    if known is None or known.expires <= now_s:
        return FleetSettings(namespace, version, issued=now_s, expires=expires)
    return replace(known, version=version, issued=now_s, expires=expires)


def turned(settings: FleetSettings, word: Word | None, names: Sequence[str] = ()) -> FleetSettings:
    """Returns `settings` with the limits `names` switched to `word`; without names, with all limits switched to it.

    If `word` is None, removes the published switch, so that each node's own switch applies.
    """
    if not names:
        return replace(settings, switch=word)
    limits: dict[str, LimitOverride] = dict(settings.limits)
    for name in names:
        limits[name] = replace(limits.get(name, LimitOverride()), switch=word)
    return replace(settings, limits={name: each for name, each in limits.items() if each != LimitOverride()})


def unknown_limits(names: Iterable[str], reported: Iterable[str]) -> list[str]:
    """Returns those of `names` that belong to no limit which any node has reported to the hub.

    A published switch for such a name would have no effect. `reported` has the names of quotas at the hub. There, a
    limit `api` of contracts that counts by customer and user is named `api/customer.user`; the name `api` matches it.
    """
    known = {limit_of_quota(each) for each in reported}
    return [name for name in names if name not in known and not any(each.startswith(f"{name}/") for each in known)]


async def published(
    store: SettingsStore, secrets: Secrets, namespace: str, *, force: bool = False
) -> FleetSettings | None:
    """Returns the published settings at the hub, expired or not.

    Returns None if the hub has no settings; with `force`, also if the settings cannot be verified.

    Raises UnverifiedDocument for a document that was not signed with one of these secrets, is for another namespace, or
    cannot be read. Also raises HubUnavailable.
    """
    payload = await store.read(bytes_max=PAYLOAD_BYTES_MAX)
    known = None if payload is None else SETTINGS.opened(payload, secrets, namespace)
    if not isinstance(known, Rejection):
        return known
    if not force:
        raise UnverifiedDocument(
            known.reason,
            f"the published document {known.problem}; give the secret that signed it, or replace it with force",
        )
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
    """Posts settings for all nodes of a namespace, and returns the posted settings.

    Args:
        store: the hub, opened for the namespace of the settings.
        fleet_settings: the settings.
        secrets: the first secret signs; the settings at the hub must have been signed with one of them.
        force: whether to replace settings at the hub that cannot be verified.
        raise_version: whether to raise a version that is too low to one above that of the settings at the hub.
        author: the author in the log of switches; if empty, nothing is logged there.

    Raises:
        UnverifiedDocument: as `published` raises it.
        InvalidSetting: the version is not above that of the settings at the hub, so no node would accept the settings.
        InvalidDocument: the settings are invalid, so no node would accept them.
        HubUnavailable: the hub does not answer, or does not store the settings.
    """
    known = await published(store, secrets, fleet_settings.namespace, force=force)
    before = 0 if known is None else known.version
    if raise_version:
        fleet_settings = replace(fleet_settings, version=max(fleet_settings.version, before + 1))
    elif fleet_settings.version <= before:
        problem = f"is not above {before}, the published version, so no node would accept it; give a higher one"
        raise InvalidSetting("version", fleet_settings.version, problem)
    await store.post(seal(fleet_settings, secrets), keep_s=fleet_settings.expires - fleet_settings.issued)
    if author:
        await record(store, fleet_settings.namespace, secrets, turned_between(known, fleet_settings, author))
    return fleet_settings
