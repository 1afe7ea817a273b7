"""Makes a node decide by the contracts that are stored at its hub, and follow their changes."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from reconverge.contracts.contracts import Contracts
from reconverge.contracts.on_demand.customers import Meanwhile
from reconverge.contracts.store.hints import HintListener
from reconverge.contracts.store.index import INDEX, minimum_as_said
from reconverge.contracts.store.kept_file import KeptFile
from reconverge.contracts.store.reader import ON_DEMAND_FROM, ContractsReader
from reconverge.errors import InvalidSetting, MissingExtra
from reconverge.published.envelope import VARIABLE, Secrets, Verifier

if TYPE_CHECKING:
    from reconverge.contracts.on_demand.page_fetching import PagesOnDemand


logger = logging.getLogger("reconverge")

Hold = Literal["auto", "all", "on-demand"]
NO_EFFECT: Final = "has no effect with hold='all'; leave it out, or set hold='on-demand'"
HOLDS: Final = get_args(Hold)
MEANWHILES: Final = get_args(Meanwhile)


def follow_hub(
    contracts: Contracts,
    *,
    secret: str | bytes | None = None,
    file: str | os.PathLike[str] | None = None,
    hold: Hold = "auto",
    meanwhile: Meanwhile = "unknown",
    page_bytes: int | None = None,
    hints: bool = True,
) -> ContractsReader:
    """Makes the node decide by the contracts that are stored at the agent's hub, from the next exchange on.

    Until the hub has been read, the document in `file` is in force, or else the one that `contracts` was made with.

    Args:
        contracts: the contracts of an agent with a hub.
        secret: the secret that contracts are signed with; by default the value of `RECONVERGE_SETTINGS_SECRET`.
        file: the path of a copy of the last contracts, which is read at a start while the hub is away.
        hold: "all" keeps all customers in memory; "on-demand" keeps the pages (parts of the contracts) with customers
            that have sent requests. "auto" keeps all pages if there are at most 32 (2 MiB in the hub's form); if
            there are more, it works as "on-demand" if `cachetools` is installed.
        meanwhile: how requests are decided while a page is being fetched: as of an "unknown" customer, or "refused".
        page_bytes: about how many bytes of memory pages fetched on demand may take; by default 32 MiB.
        hints: whether to listen for the hub's hints of changes, with a connection and a thread of its own.

    Returns the reader of the contracts, which has `stats()`. Raises InvalidSetting if there is no secret, the secret is
    too short, the agent has no hub, or a setting is invalid; MissingExtra if pages shall be held on demand and
    `cachetools` is not installed.
    """
    on_demand = _on_demand(contracts, hold, meanwhile, page_bytes)
    said = secret if secret is not None else os.environ.get(VARIABLE)
    if not said:
        raise InvalidSetting(
            "secret",
            "***",
            f"is not given, and {VARIABLE} is not set; set one to the secret that contracts are signed with",
        )
    secrets = Secrets(said, name="secret" if secret is not None else VARIABLE)
    agent = contracts.agent
    verifier = Verifier(INDEX, agent.namespace, secrets, minimum=minimum_as_said())
    reader = agent.follow(
        lambda clock, interval_ns: ContractsReader(
            verifier,
            clock,
            interval_ns=interval_ns,
            apply=lambda version, document: contracts.replace(document, version),
            file=None if file is None else KeptFile(Path(file)),
            on_demand=on_demand,
            on_demand_from=1 if hold == "on-demand" else ON_DEMAND_FROM,
            hints=HintListener(clock, interval_ns=interval_ns, wake=agent.wake_followers) if hints else None,
        )
    )
    contracts.reader = reader
    if file is not None:
        reader.recall()
    return reader


def _on_demand(contracts: Contracts, hold: str, meanwhile: Meanwhile, page_bytes: int | None) -> PagesOnDemand | None:
    """Returns the object that fetches customers' pages on demand; None if the node has to hold all pages."""
    for name, word, words in (("hold", hold, HOLDS), ("meanwhile", meanwhile, MEANWHILES)):
        if word not in words:
            raise InvalidSetting(name, word, f"is none of {', '.join(words)}; write one of these")
    if page_bytes is not None and type(page_bytes) is not int:
        raise InvalidSetting("page_bytes", page_bytes, "must be a whole number of bytes, such as 33554432")
    if hold == "all":
        if page_bytes is not None:
            raise InvalidSetting("page_bytes", page_bytes, NO_EFFECT)
        if meanwhile != "unknown":
            raise InvalidSetting("meanwhile", meanwhile, NO_EFFECT)
        return None
    try:
        from reconverge.contracts.on_demand.page_fetching import TABLE_BYTES, PagesOnDemand  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        if hold == "on-demand" or page_bytes is not None or meanwhile != "unknown":
            raise MissingExtra("fetching contracts on demand", error.name or "cachetools", "contracts") from error
        logger.info(
            "reconverge: this node holds the contracts of all customers in memory, even if there are many, because the "
            "package cachetools is not installed"
        )
        return None
    return PagesOnDemand(
        contracts,
        contracts.agent.clock,
        wake=contracts.agent.wake_followers,
        meanwhile=meanwhile,
        bytes_max=TABLE_BYTES if page_bytes is None else page_bytes,
    )
