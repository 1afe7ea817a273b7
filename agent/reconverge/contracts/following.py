"""Has the contracts of a node be those that its hub keeps."""

from __future__ import annotations

import os
from pathlib import Path

from reconverge.contracts.contracts import Contracts
from reconverge.contracts.store.index import IndexVerifier
from reconverge.contracts.store.kept_file import KeptFile
from reconverge.contracts.store.reader import ContractsReader, minimum_as_said
from reconverge.errors import InvalidSetting
from reconverge.remote_settings.signed import VARIABLE, Secrets


def follow_hub(
    contracts: Contracts, *, secret: str | bytes | None = None, file: str | os.PathLike[str] | None = None
) -> ContractsReader:
    """Have contracts be in force as the hub of their agent keeps them, from the next exchange on.

    Until the hub has been read, the document that they were made with is in force, or what `file` has.

    Args:
        contracts: of an agent with a hub.
        secret: what contracts are signed with; by default what `RECONVERGE_SETTINGS_SECRET` holds.
        file: where the last contracts are kept for a start while the hub is away.

    Returns what reads them; its `stats()` tell the version in force, and what was rejected.

    Raises:
        InvalidSetting: there is no secret, it is too short, or the agent has no hub.
    """
    said = secret if secret is not None else os.environ.get(VARIABLE)
    if not said:
        raise InvalidSetting("secret", "***", f"is not given, and {VARIABLE} is not set; contracts are signed with it")
    secrets = Secrets(said, name="secret" if secret is not None else VARIABLE)
    agent = contracts.agent
    verifier = IndexVerifier(agent.namespace, secrets, minimum=minimum_as_said())
    reader = agent.follow(
        lambda clock, interval_ns: ContractsReader(
            verifier,
            clock,
            interval_ns=interval_ns,
            apply=lambda version, document: contracts.replace(document, version),
            file=None if file is None else KeptFile(Path(file)),
        )
    )
    contracts.reader = reader
    if file is not None:
        reader.recall()
    return reader
