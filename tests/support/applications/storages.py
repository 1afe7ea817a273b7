"""Our storages, as users of the library `limits` choose them: by a string, and under one of its strategies."""

from __future__ import annotations

from typing import Any

from limits.aio.strategies import STRATEGIES as AIO_STRATEGIES
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES

from reconverge.integrations.limits_storage import AsyncReconvergeStorage, ReconvergeStorage


def storage_at(uri: str, **options: Any) -> Any:
    storage: Any = storage_from_string(uri, **options)
    assert isinstance(storage, ReconvergeStorage | AsyncReconvergeStorage)
    return storage


def limiter_at(uri: str, strategy: str, **options: Any) -> Any:
    storage = storage_at(uri, **options)
    strategies: dict[str, Any] = dict(AIO_STRATEGIES if isinstance(storage, AsyncReconvergeStorage) else STRATEGIES)
    return strategies[strategy](storage)
