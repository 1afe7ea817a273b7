"""Steps by which an operator changes the contracts of the namespace `shop` at a Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from reconverge.hub.registry import HubSettings
from reconverge.integrations.contracts.api import contracts_api
from reconverge_sync.redis.hub import RedisHub
from tests.support.contracts import TOKENS, WRITER
from tests.support.kept_contracts import book_at

AT = HubSettings("shop", 5.0)


def publish(url: str, document: dict[str, Any]) -> None:
    """Publishes a document, as its first version."""

    async def publishing() -> None:
        hub = RedisHub(url, AT)
        await book_at(hub).replace(document, author="root")
        await hub.close()

    asyncio.run(publishing())


def put_over_http(url: str, customer: str, contract: dict[str, Any]) -> None:
    """Sets the contract of a customer as a console does."""

    async def put() -> None:
        hub = RedisHub(url, AT)
        transport = httpx.ASGITransport(contracts_api(book_at(hub), tokens=TOKENS))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            headers = {"authorization": f"Bearer {WRITER}"}
            answer = await client.put(f"/contracts/{customer}", json=contract, headers=headers)
        await hub.close()

        assert answer.is_success, answer.text

    asyncio.run(put())
