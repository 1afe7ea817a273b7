"""Goal: a URL that cannot be used is refused when it is given, in words that help and tell no password.

Method: each way to get it wrong; and, in a process of their own, agents to which a package is missing.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest

from reconverge import Agent, InvalidSetting, UnknownHub
from reconverge.hub.registry import HubSettings, open_hub, redacted, split_url
from reconverge_sync.mqtt.url import BrokerAddress
from reconverge_sync.redis.connection import Connection
from reconverge_sync.redis.hub import RedisHub

SETTINGS = HubSettings("shop", 1.0)
NO_SWITCHES = ["enabled", "required", "ture", "y", "t", "2", "%20true", "true%20", "none", "None", "on,off", "%00"]
"""Words that mean neither yes nor no."""
WITHOUT_VALUES = [
    ("redis://ada:hunter2@host", "db="),
    ("redis://ada:hunter2@host", "db"),
    ("rediss://ada:hunter2@host", "ssl_check_hostname="),
    ("rediss://ada:hunter2@host", "ssl_check_hostname"),
    ("rediss://ada:hunter2@host", "ssl_cert_reqs="),
    ("rediss://ada:hunter2@host", "ssl_ca_certs="),
    ("redis+cluster://ada:hunter2@host", "shards="),
    ("redis+sentinel://ada:hunter2@host/mymaster", "sentinel_password="),
    ("mqtt://ada:hunter2@host", "tenure="),
    ("mqtts://ada:hunter2@host", "ssl_check_hostname="),
    ("mqtts://ada:hunter2@host", "ssl_cert_reqs="),
]
MALFORMED = [
    ("redis://ada:hunter2@localhost:port/0", "port"),
    ("redis://ada:hunter2@localhost:70000/0", "port"),
    ("redis://ada:hunter2@localhost:-1/0", "port"),
    ("redis://ada:hunter2@localhost:0/0", "port"),
    ("redis://ada:hunter2@[::1/0", "read"),
    ("redis://ada:hunter2[@localhost/0", "%5B"),
    ("redis+cluster://ada:[hunter2]@one,[::1]:7001", "%5B"),
    ("redis://ada:hunter2]@localhost/0", "read"),
    ("redis://ada:hunter2/x@localhost/0", "port"),
    ("redis://ada:hunter2#x@localhost/0", "port"),
    ("redis://ada:hunter2?x@localhost/0", "port"),
    ("redis://ada:hunter2@localhost/zero", "database"),
    ("redis://ada:hunter2@localhost/-1", "database"),
    ("redis://ada:hunter2@localhost/1/2", "database"),
    ("redis://ada:hunter2@localhost/\u00b2", "database"),
    ("redis://ada:hunter2@localhost?db=x", "database"),
    ("redis://ada:hunter2@localhost?timeout=3", "timeout"),
    ("redis://ada:hunter2@localhost?password=hunter2", "password"),
    ("redis://ada:hunter2@localhost?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
    ("rediss://ada:hunter2@localhost?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
    ("rediss://ada:hunter2@localhost?ssl_password=hunter2", "ssl_password"),
    ("mqtt://ada:hunter2@localhost:port", "port"),
    ("mqtt://ada:hunter2@localhost/0", "topics"),
    ("mqtt://ada:hunter2@localhost?protocol=3.1", "protocol"),
    ("mqtt://ada:hunter2@localhost?shards=0", "shards"),
    ("mqtt://ada:hunter2@localhost?tenure=nan", "tenure"),
    ("mqtt://ada:hunter2@localhost?tenure=0.2", "tenure"),
    ("mqtt://ada:hunter2@localhost?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
    ("mqtts://ada:hunter2@localhost?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
    ("mqtt://:hunter2@localhost", "without a user"),
    ("redis+unix://", "path"),
    ("redis+unix://ada:hunter2@?db=0", "path"),
    ("redis+unix:///redis.sock?db=x", "database"),
    ("redis://ada:hunter2@one,two/0", "several servers"),
    ("redis+cluster://ada:hunter2@one:7000,two:port", "port"),
    ("redis+cluster://ada:hunter2@one:7000,two/1", "number 0"),
    ("redis+cluster://ada:hunter2@one?shards=0", "shards"),
    ("redis+cluster://ada:hunter2@one?shards=1025", "shards"),
    ("redis+cluster://ada:hunter2@one?shards=many", "shards"),
    ("redis+cluster://ada:hunter2@one?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
    ("rediss+cluster://ada:hunter2@one?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
    ("redis+cluster://ada:hunter2@" + ",".join(f"host{number}" for number in range(65)), "65 hosts"),
    ("redis+sentinel://ada:hunter2@one,two", "service"),
    ("redis+sentinel://ada:hunter2@one,two/", "service"),
    ("redis+sentinel://ada:hunter2@one,two/mymaster/x", "database"),
    ("redis+sentinel://ada:hunter2@one/mymaster?shards=3", "shards"),
    *((f"rediss://ada:hunter2@host?ssl_check_hostname={word}", "true, yes, on, 1, false") for word in NO_SWITCHES),
    *((f"rediss+cluster://ada:hunter2@one?ssl_check_hostname={word}", "true, yes, on, 1") for word in NO_SWITCHES),
    *((f"rediss+sentinel://ada:hunter2@one/m?ssl_check_hostname={word}", "true, yes") for word in NO_SWITCHES),
    *((f"mqtts://ada:hunter2@host?ssl_check_hostname={word}", "true, yes, on, 1, false") for word in NO_SWITCHES),
    *((f"{start}?{option}", "no value for") for start, option in WITHOUT_VALUES),
    *((f"{start}?{option}x&{option}x", "twice") for start, option in WITHOUT_VALUES if option.endswith("=")),
    ("rediss://ada:hunter2@host?ssl_cert_reqs=none&ssl_check_hostname=true", "no effect"),
    ("rediss://ada:hunter2@host?ssl_cert_reqs=REQUIRED", "ssl_cert_reqs"),
    ("rediss://ada:hunter2@host?ssl_chek_hostname=true", "db, ssl_ca_certs, ssl_cert_reqs, ssl_certfile, ssl_check"),
    ("mqtts://ada:hunter2@host?SSL_CHECK_HOSTNAME=true", "protocol, shards, ssl_ca_certs"),
    ("mqtt://ada:hunter2@host?ssl_check_hostname=true", "known: protocol, shards, tenure"),
    ("redis://ada:hunter2@localhost/1?db=2", "twice"),
    ("redis://ada:hunter2@localhost/1#2", "#"),
    (f"redis://ada:hunter2@localhost/{'9' * 5000}", "database"),
    (f"redis+cluster://ada:hunter2@localhost?shards={'9' * 5000}", "shards"),
    ("redis://ada:hunter2@localhost/\u0663", "database"),
    ("embedded://name?sync_interval=1", "something after the name"),
    ("embedded://name/other", "something after the name"),
    ("memory://name?policy=strict", "policy is a setting of the agent"),
]


@pytest.mark.parametrize(("url", "word"), MALFORMED, ids=[url for url, _ in MALFORMED])
def test_a_malformed_url_is_refused(url: str, word: str) -> None:
    """When the agent is made, with the URL as far as it may be shown, and what is wrong with it."""
    with pytest.raises(InvalidSetting) as raised:
        Agent(url)

    assert "hub" == raised.value.name
    assert redacted(url) == raised.value.value
    assert word in str(raised.value).replace(redacted(url), "")
    assert "hunter2" not in f"{raised.value} {raised.value!r} {raised.value.args} {vars(raised.value)}"
    assert (None, None) == (
        raised.value.__cause__,
        None if raised.value.__suppress_context__ else raised.value.__context__,
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost", "redis://localhost"),
        ("redis://localhost:6380/2", "redis://localhost:6380/2"),
        ("redis://:pw@localhost", "redis://***@localhost"),
        ("redis://ada:p%40w@10.0.0.1:6380?db=3", "redis://***@10.0.0.1:6380?db=3"),
        ("redis://[::1]:6380/2", "redis://[::1]:6380/2"),
        ("rediss://ada:pw@host?ssl_ca_certs=/ca.pem&ssl_check_hostname=no", None),
        ("redis+unix:///var/run/redis.sock?db=2", None),
        ("redis+unix://ada:pw@/var/run/redis%20two.sock", "redis+unix://***@/var/run/redis%20two.sock"),
    ],
)
def test_a_good_url_is_shown_without_its_password(url: str, shown: str | None) -> None:
    """Making a hub connects to nothing."""
    assert f"RedisHub({shown or redacted(url)!r}, namespace='shop')" == repr(RedisHub(url, SETTINGS))


@pytest.mark.parametrize(
    ("url", "shards", "shown"),
    [
        ("redis+cluster://localhost", 16, "ClusterHub('redis+cluster://localhost'"),
        (
            "redis+cluster://ada:pw@one:7000,[::1]:7001/?shards=64",
            64,
            "ClusterHub('redis+cluster://***@one:7000,[::1]:",
        ),
        (
            "rediss+cluster://ada:pw@one/0?ssl_ca_certs=/ca.pem&shards=1024",
            1024,
            "ClusterHub('rediss+cluster://***@one/",
        ),
        ("redis+sentinel://one,two:26380/mymaster", 1, "SentinelHub('redis+sentinel://one,two:26380/mymaster'"),
        (
            "rediss+sentinel://ada:pw@one,two/mymaster/3?sentinel_username=bob&sentinel_password=pw",
            1,
            "SentinelHub('rediss+sentinel://***@one,two/mymaster/3?sentinel_username=***&sentinel_password=***'",
        ),
    ],
)
def test_hubs_of_several_servers_are_opened_by_their_urls(url: str, shards: int, shown: str) -> None:
    """Hosts stand side by side; what is nobody's business is not shown."""
    hub = open_hub(url, SETTINGS)

    assert shards == hub.shards
    assert repr(hub).startswith(shown)


@pytest.mark.parametrize(
    "url",
    [
        "redis://ada:pw@[::1]:6380/2?db=3",
        "redis+unix:///var/run/redis.sock?db=2",
        "redis+cluster://one,two:7001?shards=64#x",
        "memory://",
        "localhost:6379",
        "",
    ],
)
def test_a_url_is_split_as_python_does(url: str) -> None:
    """Where Python can: see above for several hosts."""
    assert urlsplit(url) == split_url(url)


@pytest.mark.parametrize("scheme", ["mongodb", "mqttt", "http", "redis+tcp"])
def test_an_unknown_scheme_names_the_known_ones(scheme: str) -> None:
    """Whoever mistypes is told what there is."""
    with pytest.raises(UnknownHub) as raised:
        Agent(f"{scheme}://ada:hunter2@localhost")

    assert scheme == raised.value.scheme
    assert {"embedded", "memory", "redis", "redis+unix", "rediss"} <= set(raised.value.known)
    for known in raised.value.known:
        assert f"{known}://" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "hub", ["localhost:6379", "", "redis:/localhost", "ada:hunter2@localhost", "://x", 7, None.__class__]
)
def test_what_is_no_url_is_refused(hub: object) -> None:
    """And what a URL looks like is said."""
    with pytest.raises(InvalidSetting) as raised:
        Agent(hub)  # type: ignore[arg-type]

    assert "hunter2" not in str(raised.value)


MISSING = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
import reconverge

try:
    reconverge.Agent({url!r})
except reconverge.MissingExtra as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "extra", "package"),
    [
        *(
            (url, extra, package)
            for url, extra in (
                ("redis://localhost", "redis"),
                ("rediss://localhost", "redis"),
                ("redis+unix:///x", "redis"),
                ("redis+cluster://x", "redis"),
                ("redis+sentinel://x/y", "redis"),
                ("embedded://", "embedded"),
            )
            for package in ("redis", "msgpack")
        ),
        *((url, "mqtt", package) for url in ("mqtt://localhost", "mqtts://x") for package in ("aiomqtt", "msgpack")),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(url: str, extra: str, package: str) -> None:
    """The agent works without it as far as it can: what needs it says so."""
    run = subprocess.run(
        [sys.executable, "-c", MISSING.format(package=package, url=url)], capture_output=True, text=True, check=True
    )

    assert f"package {package!r}" in run.stdout
    assert f"pip install 'reconverge[{extra}]'" in run.stdout


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster", "mqtts"])
@pytest.mark.parametrize(
    ("words", "checked"),
    [(("true", "True", "TRUE", "yes", "on", "On", "1"), True), (("false", "False", "no", "off", "OFF", "0"), False)],
)
def test_all_words_for_yes_and_no_are_known(scheme: str, words: tuple[str, ...], checked: bool) -> None:
    """In any case, and for a Redis as for a broker; names are checked if nothing is said."""
    for word in words:
        assert checked == _tls_of(f"{scheme}://host?ssl_check_hostname={word}")["ssl_check_hostname"]
    assert _tls_of(f"{scheme}://host")["ssl_check_hostname"]
    assert not _tls_of(f"{scheme}://host?ssl_cert_reqs=none")["ssl_check_hostname"]


def _tls_of(url: str) -> dict[str, Any]:
    if url.startswith("mqtts"):
        return BrokerAddress.of(url).tls
    return Connection(url, several="cluster" in url)._options


@pytest.mark.parametrize("url", ["rediss://host?ssl_check_hostname=ture", "memory://x?y=1", "embedded://x?y=1"])
def test_a_fallback_is_read_as_strictly(url: str) -> None:
    """It is used when nobody looks."""
    with pytest.raises(InvalidSetting):
        Agent("redis://localhost", fallback=url)
