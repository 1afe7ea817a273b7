"""How to encrypt, for all connections of a URL: one context, which is made anew when its files have changed."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """As `tls_options` has read it out of a URL. Reads files. Raises OSError (ssl.SSLError is one).

    Whoever names an authority trusts it, and not the system's beside it, which also take long to read.
    """
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    context.check_hostname = options["ssl_check_hostname"]
    context.verify_mode = ssl.CERT_NONE if options["ssl_cert_reqs"] == "none" else ssl.CERT_REQUIRED
    if "ssl_certfile" in options or "ssl_keyfile" in options:
        context.load_cert_chain(options.get("ssl_certfile", ""), options.get("ssl_keyfile"))
    return context


class SharedContext:
    """The same for every connection, as making one takes up to 40 ms of a loop's time."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._files = [Path(options[name]) for name in FILES if name in options]
        self._context: ssl.SSLContext | None = None
        self._made_of: list[tuple[int, int, int]] = []

    def get(self) -> ssl.SSLContext:
        """What to connect with. Raises OSError, as a file may not be there yet; the next call tries again."""
        made_of = [(found.st_ino, found.st_mtime_ns, found.st_size) for found in (file.stat() for file in self._files)]
        if self._context is None or made_of != self._made_of:
            self._context, self._made_of = tls_context(self._options), made_of
        return self._context
