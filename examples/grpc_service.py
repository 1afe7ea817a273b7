"""A gRPC service with limits on a loopback port, and a client that is told when to come again.

RECONVERGE_HUB says where the processes of the service meet; without it, this process is alone.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from reconverge import Agent
from reconverge.integrations import Rule
from reconverge.integrations.grpc import RateLimitInterceptor, by_metadata


def greet(name: bytes, _context: Any) -> bytes:
    """One for one."""
    return b"hello, " + name


def count(upto: bytes, _context: Any) -> Iterator[bytes]:
    """Many for one."""
    for number in range(int(upto)):
        yield b"%d" % number


handlers = grpc.method_handlers_generic_handler(
    "example.Service",
    {
        "Greet": grpc.unary_unary_rpc_method_handler(greet),
        "Count": grpc.unary_stream_rpc_method_handler(count),
    },
)
interceptor = RateLimitInterceptor(
    "20/second",
    rules=[Rule(limits="2/minute", name="counting", paths=["/example.Service/Count"])],
    key_func=by_metadata("x-api-key"),
    agent=Agent(namespace="grpc-service"),
)
server = grpc.server(ThreadPoolExecutor(4), interceptors=[interceptor], handlers=[handlers])
port = server.add_insecure_port("127.0.0.1:0")
server.start()

with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    greets, counts = channel.unary_unary("/example.Service/Greet"), channel.unary_stream("/example.Service/Count")
    ada = (("x-api-key", "ada"),)
    reply, call = greets.with_call(b"ada", metadata=ada)
    print(f"{reply.decode()}; ratelimit: {dict(call.trailing_metadata())['ratelimit']}")
    for _ in range(3):
        try:
            print("counted:", *(number.decode() for number in counts(b"5", metadata=ada)))
        except grpc.RpcError as error:
            told: Any = error.trailing_metadata()
            print(f"{error.code().name}: {error.details()} retry-after: {dict(told)['retry-after']}")

server.stop(None).wait()
