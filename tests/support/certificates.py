"""Certificates for tests, made by openssl: an authority, certificates that it has signed, and a stranger's."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """An authority, and the certificates that it has signed; it has not signed that of `stranger`."""

    authority: Path
    server: Path
    client: Path
    stranger: Path


def make_certificates(directory: Path, *, addresses: Sequence[str] = ("127.0.0.1",)) -> Certificates:
    """Makes certificates for a server at these addresses. Each file has a certificate and its key."""
    authority = _self_signed(directory, "authority")
    names = ",".join(f"IP:{address}" for address in addresses)
    return Certificates(
        authority,
        _signed(directory, "server", authority, f"subjectAltName={names}"),
        _signed(directory, "client", authority, "extendedKeyUsage=clientAuth"),
        _self_signed(directory, "stranger"),
    )


def tls_options(certificates: Certificates) -> tuple[str, ...]:
    """Returns the options that make a redis-server speak TLS beside its port."""
    files = {
        "tls-cert-file": certificates.server,
        "tls-key-file": certificates.server,
        "tls-ca-cert-file": certificates.authority,
    }
    options = (word for name, path in files.items() for word in (f"--{name}", str(path)))
    return ("--tls-auth-clients", "optional", *options)


def _self_signed(directory: Path, name: str) -> Path:
    pem = directory / f"{name}.pem"
    # From Python 3.13 on, an authority needs to say that it is one.
    use = ["-addext", "keyUsage=critical,keyCertSign"]
    out = ["-keyout", str(pem), "-out", str(directory / f"{name}.crt")]
    _openssl("req", "-x509", *_new_key(name), *use, "-days", "2", *out)
    return _joined(pem)


def _signed(directory: Path, name: str, authority: Path, extension: str) -> Path:
    pem, request, extensions = (directory / f"{name}.{suffix}" for suffix in ("pem", "csr", "ext"))
    extensions.write_text(extension)
    _openssl("req", *_new_key(name), "-keyout", str(pem), "-out", str(request))
    signing = ["-CA", str(authority), "-CAkey", str(authority), "-set_serial", str(abs(hash(name)))]
    out = ["-out", str(directory / f"{name}.crt")]
    _openssl("x509", "-req", "-days", "2", "-in", str(request), *signing, "-extfile", str(extensions), *out)
    return _joined(pem)


def _joined(pem: Path) -> Path:
    with pem.open("a") as file:
        file.write(pem.with_suffix(".crt").read_text())
    return pem


def _new_key(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}"]


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)  # noqa: S607  # found on the path
