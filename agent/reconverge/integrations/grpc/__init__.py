"""Limits in gRPC servers."""

from reconverge.integrations.grpc.interceptors import (
    AioRateLimitInterceptor,
    GrpcRequest,
    RateLimitInterceptor,
    by_metadata,
    by_peer,
    by_rpc,
    current_outcome,
)

__all__ = [
    "AioRateLimitInterceptor",
    "GrpcRequest",
    "RateLimitInterceptor",
    "by_metadata",
    "by_peer",
    "by_rpc",
    "current_outcome",
]
