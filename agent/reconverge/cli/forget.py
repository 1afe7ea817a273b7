"""The command `reconverge forget`: erases an identity from the hub, from all nodes, and from the hub's contracts."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from reconverge.agent.assembly import hasher_of
from reconverge.agent.erasing import Forgotten, erase_at, plain_identity
from reconverge.cli.contracts.at_hub import AuthorOption, IdentityArgument, author_as_said
from reconverge.cli.shared.asking import ask_hub, secrets_as_said
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption
from reconverge.contracts.store.hub_book import HubBook
from reconverge.contracts.store.index import INDEX_BYTES_MAX, minimum_as_said
from reconverge.errors import InvalidSetting
from reconverge.hub.fallback.opening import eraser_in
from reconverge.hub.hashing import KeyHasher, hashing
from reconverge.hub.port import ContractStore, Hub
from reconverge.hub.registry import redacted
from reconverge.published.envelope import VARIABLE

WAIT_S: Final = 10.0
LEFT_STATUS: Final = 1


def forget(
    identity: IdentityArgument,
    hub: HubOption,
    namespace: NamespaceOption = "default",
    author: AuthorOption = "",
    keep_contract: Annotated[
        bool, typer.Option("--keep-contract", help="Leave the contracts as they are; erase what was used alone.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(help="Seconds to wait until all nodes have let go of it.", min=0, max=3600, metavar="SECONDS"),
    ] = WAIT_S,
    as_json: JsonOption = False,
) -> None:
    """Erase all that is known of an identity: its contract, what it has used, its usage that was not exported.

    End its requests first: if the identity goes on to make requests, they are counted and it stays known. What it has
    used is forgiven, as by a reset. Events that were exported cannot be recalled. If the fleet has a
    RECONVERGE_KEY_SECRET, set it here, too. Ends with status 1 if anything is left, and names it.
    """
    plain_identity(identity)
    hasher = hasher_of(None, namespace=namespace)

    async def ask(found: Hub) -> tuple[int | None, Forgotten]:
        eraser_in(found, redacted(hub))
        version = None
        if not keep_contract and isinstance(found, ContractStore):
            version = await _forget_contract(found, namespace, identity, author_as_said(author))
        return version, await _forget_use(found, namespace, identity, hasher, wait)

    version, done = ask_hub(hub, namespace, ask, what="no identity can be erased")
    if as_json:
        said: dict[str, Any] = {"contracts_version": version, **asdict(done), "complete": done.complete}
        typer.echo(json.dumps(said, indent=2))
    else:
        contract = "no contract names it" if version is None else f"the contracts are at version {version} without it"
        typer.echo(f"{contract if not keep_contract else 'contracts are as they were'}")
        typer.echo(f"erased {done.cells} keys of limits, and {done.rows} rows and events of usage")
    if done.kept:
        typer.echo(
            f"reconverge: {done.kept} keys stay, because nodes still use them, or do not answer. End the requests of"
            " that identity, and run this command again. If a node with such keys is gone, wait until its lease is"
            " over: at most ten minutes, unless lease_ttl is longer",
            err=True,
        )
    if not done.complete:
        raise typer.Exit(LEFT_STATUS)


async def _forget_contract(hub: ContractStore, namespace: str, identity: str, author: str) -> int | None:
    """Removes an identity from the contracts. Returns their new version; None if they do not name the identity.

    Raises InvalidSetting if the hub keeps contracts and the secret is not set.
    """
    if not os.environ.get(VARIABLE) and await hub.read_index(bytes_max=INDEX_BYTES_MAX) is None:
        return None
    if not os.environ.get(VARIABLE):
        raise InvalidSetting(
            VARIABLE,
            "",
            "is not set, and the contracts at the hub are signed with it; set it, or add --keep-contract",
        )
    return await HubBook(hub, namespace, secrets_as_said(), minimum=minimum_as_said()).forget(identity, author=author)


async def _forget_use(hub: Hub, namespace: str, identity: str, hasher: KeyHasher | None, wait_s: float) -> Forgotten:
    seen = hub if hasher is None else hashing(hub, hasher)
    eraser = eraser_in(seen, namespace)
    return await erase_at(
        [lambda question: question(eraser)],
        eraser.shards,
        identity,
        namespace=namespace,
        hasher=hasher,
        wait_s=wait_s,
    )
