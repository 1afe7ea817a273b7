"""Goal: a limit in a place where it would limit nothing is an error that shows the place, or a sentence in the log.

Method: each mistake in an application that runs; the message has the words that it must have.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from reconverge.integrations.grpc import AioRateLimitInterceptor

pytestmark = pytest.mark.usefixtures("bare_environment")

CALL_S_MAX = 30.0


def test_the_interceptor_for_asyncio_ends_each_call_of_a_server_on_threads(caplog: pytest.LogCaptureFixture) -> None:
    """Its clients do not wait for ever, and the server logs which interceptor to write."""
    served = grpc.unary_unary_rpc_method_handler(lambda request, _context: request)
    server = grpc.server(ThreadPoolExecutor(1), interceptors=[AioRateLimitInterceptor("2/minute", agent="memory://")])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop", {"Order": served}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, caplog.at_level(logging.ERROR, "grpc"):
            for _ in range(2):
                with pytest.raises(grpc.RpcError) as raised:
                    channel.unary_unary("/shop/Order")(b"", timeout=CALL_S_MAX)
                assert grpc.StatusCode.UNKNOWN == raised.value.code()  # type: ignore[attr-defined]  # of the call
    finally:
        server.stop(None).wait()

    assert "write RateLimitInterceptor in grpc.server" in caplog.text
