"""Makes one TLS context for all connections of a URL, and a new one when the files that it was made of have changed."""

# redis-py makes a context for each connection, and reads all certificate authorities of the system into it although one
# is named: 36 to 43 ms of the loop's time. With three Sentinels that took 95 to 157 ms of an exchange that has 400 ms;
# on a busy machine agents did not come back from a failover. A shared context with the named authority alone takes 7 to
# 9 ms.

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

CONTENTS: Final = {
    "ssl_ca_certs": "certificates in PEM form",
    "ssl_certfile": "a certificate and its chain in PEM form",
    "ssl_keyfile": "the private key of the certificate in PEM form, without a password",
}


class UnusableFile(Exception):
    """Raised when a file that a hub's URL names for TLS cannot be read or has unusable content.

    It is not derived from OSError, which a client would take for a server that cannot be reached.
    """

    def __init__(self, name: str, path: str, problem: str) -> None:
        super().__init__(f"the file that {name} names, {path}, {problem}")


FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Returns a TLS context made from `options`, the result of `tls_options`. Reads files. Raises UnusableFile.

    If the URL names a certificate authority, only that one is trusted. The system's authorities, which take long to
    read, are then not loaded.
    """
    for name in FILES:
        if name in options:
            _check_readable(name, options[name])
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    except ssl.SSLError:
        raise _unfit("ssl_ca_certs", options) from None
    context.check_hostname = options["ssl_check_hostname"]
    context.verify_mode = ssl.CERT_NONE if options["ssl_cert_reqs"] == "none" else ssl.CERT_REQUIRED
    if "ssl_certfile" in options or "ssl_keyfile" in options:
        try:
            # With an empty password, an encrypted key is an error; with none, OpenSSL would ask for one at the
            # terminal.
            context.load_cert_chain(options.get("ssl_certfile", ""), options.get("ssl_keyfile"), password="")
        except (ssl.SSLError, ValueError):
            raise _unfit("ssl_keyfile" if "ssl_keyfile" in options else "ssl_certfile", options) from None
    return context


def _check_readable(name: str, path: str) -> None:
    try:
        Path(path).open("rb").close()
    except FileNotFoundError:
        raise UnusableFile(name, path, "does not exist") from None
    except OSError as error:
        raise UnusableFile(name, path, f"cannot be read: {error.strerror}") from None


def _unfit(name: str, options: Mapping[str, Any]) -> UnusableFile:
    return UnusableFile(name, options[name], f"does not hold {CONTENTS[name]}")


class SharedContext:
    """A TLS context that all connections of a URL share, because making one takes up to 40 ms of the event loop."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._files = [Path(options[name]) for name in FILES if name in options]
        self._context: ssl.SSLContext | None = None
        self._made_of: list[tuple[int, int, int]] = []

    def get(self) -> ssl.SSLContext:
        """Returns the context; makes a new one if its files have changed.

        Raises UnusableFile, for example if a file is not there yet; the next call tries again.
        """
        try:
            found = [file.stat() for file in self._files]
        except OSError:
            found, self._context = [], None
        made_of = [(each.st_ino, each.st_mtime_ns, each.st_size) for each in found]
        if self._context is None or made_of != self._made_of:
            self._context, self._made_of = tls_context(self._options), made_of
        return self._context
