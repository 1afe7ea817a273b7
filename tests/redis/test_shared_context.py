"""Goal: encrypting costs an event loop little, however often connections are made.

Method: the context that all connections of a URL share, and real connections that use it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from reconverge.hub.registry import HubSettings
from reconverge_sync.client.tls import SharedContext, UnusableFile, tls_context
from reconverge_sync.redis.hub import RedisHub
from tests.support.certificates import Certificates
from tests.support.fixtures.servers import TLSRedis


def options(authority: Path, **more: Any) -> dict[str, Any]:
    return {"ssl_cert_reqs": "required", "ssl_check_hostname": True, "ssl_ca_certs": str(authority), **more}


def test_a_context_is_made_once_and_anew_when_its_files_have_changed(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Certificates are renewed while a process lives."""
    authority = tmp_path / "authority.pem"
    copy(certificates.authority, authority)
    shared = SharedContext(options(authority))
    first = shared.get()
    assert first is shared.get()

    copy(certificates.stranger, authority)
    os.utime(authority, (1, 1))
    assert first is not shared.get()


def test_a_file_that_is_not_there_yet_is_looked_for_again(certificates: Certificates, tmp_path: Path) -> None:
    """It may be mounted a little later than the process starts."""
    shared = SharedContext(options(tmp_path / "authority.pem"))
    with pytest.raises(UnusableFile, match=r"ssl_ca_certs names, .*authority\.pem, does not exist"):
        shared.get()

    copy(certificates.authority, tmp_path / "authority.pem")
    assert isinstance(shared.get(), ssl.SSLContext)


def test_whoever_names_an_authority_trusts_no_other(certificates: Certificates) -> None:
    """Not even those of the system, which would take 40 ms to read for each connection."""
    assert 1 == len(tls_context(options(certificates.authority)).get_ca_certs())


async def test_connections_of_a_hub_share_one(
    tls_redis: TLSRedis, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, and also after the first were closed."""
    made: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def listen(*arguments: Any, **named: Any) -> ssl.SSLContext:
        made.append(create(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", listen)
    hub = RedisHub(tls_redis.url(certificates.authority), HubSettings("shop", 20.0))
    for _ in range(3):
        await asyncio.gather(hub.totals(), hub.totals())
        await hub.close()

    assert 1 == len(made)
