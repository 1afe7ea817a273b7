"""Rate limits for gRPC servers."""

from reconverge.integrations.grpc.interceptors import (
    AioRateLimitInterceptor,
    RateLimitInterceptor,
    by_metadata,
    by_peer,
    by_rpc,
    current_outcome,
)
from reconverge.integrations.grpc.request import GrpcRequest

__all__ = [
    "AioRateLimitInterceptor",
    "GrpcRequest",
    "RateLimitInterceptor",
    "by_metadata",
    "by_peer",
    "by_rpc",
    "current_outcome",
]
