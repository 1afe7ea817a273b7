"""Goal: an agent is as its file, the environment and the program say, and follows a new file wholly or not at all.

Method: real files, a real signal, a real Redis under traffic; every mistake must be told with its line and field.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconverge import Agent, UnknownHub
from reconverge.integrations.config import VARIABLES, Configuration, Settings, load
from reconverge.integrations.config.positions import InvalidConfiguration
from tests.support.agents import admitted_of, net_at
from tests.support.published import SECRET, known_by, login, post_at, sealed_now
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("bare_environment")


SHOP = """\
namespace = "shop"
sync_interval = 0.2
policy = "strict"

[limits]
login = "5/minute"

[limits.api]
limit = "10/second; 1000/hour as hourly"
soft = "10%"
costs = { GET = 1, POST = 2 }
sync_interval = 0.7
switch = "shadow"

[limits.vip]
limit = "2/minute"
parent = "login"
"""
SHOP_IN_YAML = """\
namespace: shop
sync_interval: 0.2
policy: strict
limits:
  login: 5/minute
  api:
    limit: 10/second; 1000/hour as hourly
    soft: 10%
    costs: {GET: 1, POST: 2}
    sync_interval: 0.7
    switch: shadow
  vip:
    limit: 2/minute
    parent: login
"""
GOOD = {".toml": SHOP, ".yaml": SHOP_IN_YAML, ".json": json.dumps(tomllib.loads(SHOP))}
WRONG = [
    ("shop.toml", 'sync_interval = "soon"\n', 1, "sync_interval"),
    ("shop.toml", "\nsync_interval = 1e9\n", 2, "sync_interval"),
    ("shop.toml", 'switch = "dark"\n', 1, "switch"),
    ("shop.toml", "max_keys = 0\n", 1, "max_keys"),
    ("shop.toml", "# of the shop\nsync_intervall = 1\n", 2, "sync_intervall"),
    ("shop.toml", "[limits]\n\nlogin = 7\n", 3, "limits.login"),
    ("shop.toml", '[limits]\nlogin = "100/minut"\n', 2, "limits.login.limit"),
    ("shop.toml", '[limits.login]\nlimit = "1/minute"\npolcy = "strict"\n', 3, "limits.login.polcy"),
    ("shop.toml", '[limits.login]\npolicy = "strict"\n', 1, "limits.login.limit"),
    ("shop.toml", '[limits.login]\nlimit = "1/minute"\n\npolicy = "bold"\n', 4, "limits.login.policy"),
    ("shop.toml", '[limits.login]\nlimit = "1/minute"\nsoft = "much"\n', 3, "limits.login.soft"),
    ("shop.toml", '[limits]\nlogin = { limit = "1/minute", switch = "dark" }\n', 2, "limits.login.switch"),
    ("shop.toml", '[limits.login]\nlimit = "1/minute"\ncosts.GET = "dear"\n', 3, "limits.login.costs.GET"),
    ("shop.toml", '[limits."log in"]\nlimit = "1/minute"\n', 2, "limits.log in.limit"),
    ("shop.toml", '[limits.vip]\nlimit = "1/minute"\nparent = "all"\n', 3, "limits.vip.parent"),
    ("shop.toml", '[limits.vip]\nlimit = "1/minute"\nsync_interval = 0\n', 3, "limits.vip.sync_interval"),
    ("shop.toml", '[limits.vip]\nlimit = "1/minute"\n\nsync_interval = 101\n', 4, "limits.vip.sync_interval"),
    ("shop.toml", "hub = 7\n", 1, "hub"),
    ("shop.toml", "\nsettings_secret = 'short'\n", 2, "settings_secret"),
    ("shop.toml", '[limits.login]\nlimit = "2/minute"\n\ncap = "1/minute"\n', 4, "limits.login.cap"),
    ("shop.toml", '[limits.login]\nlimit = "2/minute"\n\ncap = "9/hour"\n', 4, "limits.login.cap"),
    ("shop.toml", '[limits.login]\nlimit = "2/minute"\nblock_for = "1 hour"\n', 3, "limits.login.block_for"),
    ("shop.toml", '[limits.login]\nlimit = "2/minute"\nblock_after = "9/minute"\n', 3, "limits.login.block_after"),
    (
        "shop.yaml",
        "limits:\n  login:\n    limit: 2/minute\n    block_after: often\n    block_for: 600\n",
        4,
        "limits.login.block_after",
    ),
    ("shop.toml", "[limits\n", 1, ""),
    ("shop.yaml", "namespace: shop\nsync_interval: soon\n", 2, "sync_interval"),
    ("shop.yaml", "limits:\n  login: 100/minut\n", 2, "limits.login.limit"),
    ("shop.yaml", "limits:\n  login:\n    limit: 1/minute\n    polcy: strict\n", 4, "limits.login.polcy"),
    ("shop.yaml", "limits: [\n", 2, ""),
    ("shop.yaml", "namespace: a\nnamespace: b\n", 2, ""),
    ("shop.yaml", "limits:\n  login: 1/minute\n  login: 9/minute\n", 3, ""),
    ("shop.json", '{"namespace": "a",\n"namespace": "b"}', 2, ""),
    ("shop.yaml", "1: x\n", 1, ""),
    ("shop.yaml", "false\n", 1, ""),
    ("shop.yaml", "namespace: 2001-99-99\n", 1, ""),
    ("shop.yaml", "max_keys: " + "9" * 5000, 1, ""),
    ("shop.yaml", "limits: " + "[" * 5000, 1, ""),
    ("shop.toml", "max_keys = " + "9" * 5000, 1, ""),
    ("shop.toml", "limits = " + "[" * 5000, 1, ""),
    ("shop.toml", "#" * (1 << 20) + "\n", None, ""),
    ("shop.yaml", "- limits\n", 1, ""),
    ("shop.json", '{"limits": {\n "login": "1/minut"}}', 2, "limits.login.limit"),
]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(SHOP)
    return path


def state_of(agent: Agent) -> Any:
    """All that a reload could change."""
    limits = [
        (name, each.quotas, each.control.policy, each.switched, [table.own_pace for table in each.control.tables])
        for name, each in sorted(agent.limiters.items())
    ]
    return limits, agent.switched, agent._kernel.interval_ns, agent._kernel.interval_min_ns


# -------------------------------------------------------------------- what is said


def test_a_file_says_who_may_publish_settings_and_how_far_they_go(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret, better in the environment, and the cap of a limit."""
    (tmp_path / "shop.toml").write_text('namespace = "shop"\nlimits.login = {limit = "10/day", cap = "30/day"}\n')
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    post_at(redis_server.url, sealed_now(limits=login("90/day")))
    configuration = load(tmp_path / "shop.toml", hub=redis_server.url, exchange_timeout=5.0)
    with configuration.agent as agent:
        eventually(lambda: known_by(agent).version, "what is published")
        configuration.reload()

    assert 30 == configuration.limiter("login").limit.quota
    assert SECRET not in f"{configuration._settings!r} {agent!r}"


@pytest.mark.parametrize(("name", "text"), [("shop.toml", SHOP), ("shop.yaml", SHOP_IN_YAML)])
def test_a_file_says_all_there_is_to_say(tmp_path: Path, name: str, text: str) -> None:
    """Of the agent and of its limits, in either language."""
    (tmp_path / name).write_text(text)
    configuration = load(tmp_path / name)
    agent, api = configuration.agent, configuration.agent.limiter("api")

    assert "Agent('memory://', namespace='shop', limits=['api', 'login', 'vip'])" == repr(agent)
    assert 200_000_000 == agent._kernel.interval_ns
    assert ["api", "api#hourly"] == list(api.quotas)
    assert (0.1, {"GET": 1, "POST": 2}, "strict", "shadow") == (
        api.limit.soft,
        api.limit.costs,
        api.control.policy.name,
        api.switched,
    )
    assert [700_000_000] * 2 == [table.interval_ns for table in api.control.tables]
    assert ["vip", "login"] == [table.name for table in configuration.agent.limiter("vip").control.tables]
    assert 5 == admitted_of(configuration.agent.limiter("vip"), 9)


def test_arguments_come_before_the_environment_and_that_before_the_file(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting by itself, also of one limit."""
    monkeypatch.setenv("RECONVERGE_NAMESPACE", "of-the-environment")
    monkeypatch.setenv("RECONVERGE_SYNC_INTERVAL", "0.4")
    monkeypatch.setenv("RECONVERGE_LIMITS", '{"login": "7/minute", "api": {"switch": "off"}}')
    configuration = load(shop, namespace="of-arguments", limits={"api": {"soft": 0.5}, "login": {"switch": "shadow"}})
    login, api = configuration.agent.limiter("login"), configuration.agent.limiter("api")

    assert "namespace='of-arguments'" in repr(configuration.agent)
    assert 400_000_000 == configuration.agent._kernel.interval_ns
    assert (7, "shadow") == (login.limit.quota, login.switched)
    assert (0.5, "off", {"GET": 1, "POST": 2}) == (api.limit.soft, api.switched, api.limit.costs)
    assert "strict" == api.control.policy.name


def test_the_environment_may_name_the_file(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the program names none; and without any, what is left is the defaults."""
    assert {} == load().agent.limiters
    monkeypatch.setenv("RECONVERGE_CONFIG", str(shop))
    assert {"login", "api", "vip"} == set(load().agent.limiters)


def test_every_setting_has_a_variable() -> None:
    """Of that name, and every variable has a setting; all settings of `Agent` are there but clock and credentials."""
    assert {name: f"RECONVERGE_{name.upper()}" for name in Settings.model_fields} == VARIABLES
    parameters = set(Agent.__init__.__annotations__) - {"return", "clock", "credentials"}
    assert parameters | {"limits"} == set(VARIABLES)


# -------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(("name", "text", "line", "field"), WRONG, ids=lambda value: repr(value)[:60])
def test_a_wrong_file_is_told_with_its_line_and_field(
    tmp_path: Path, name: str, text: str, line: int, field: str
) -> None:
    """When it is loaded and when it is reloaded, where nothing has changed then."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidConfiguration) as loading:
        load(path)
    good = GOOD[path.suffix]
    path.write_text(good)
    configuration = load(path)
    before = state_of(configuration.agent)
    path.write_text(text)
    with pytest.raises(InvalidConfiguration) as reloading:
        configuration.reload()

    assert (name, line, field) == (loading.value.source, loading.value.line, loading.value.field)
    assert (line, field) == (reloading.value.line, reloading.value.field)
    assert (name if line is None else f"{name}, line {line}: ") in str(loading.value)
    assert before == state_of(configuration.agent)


def test_what_the_environment_and_the_program_say_wrong_is_told_as_theirs(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of the variable, or as an argument; and never with what was said, where that may be a secret."""
    with pytest.raises(InvalidConfiguration, match=r"^arguments: max_keys: "):
        load(shop, max_keys="many")
    with pytest.raises(InvalidConfiguration, match=r"^arguments: limits\.api\.soft: "):
        load(shop, limits={"api": {"soft": "much"}})
    monkeypatch.setenv("RECONVERGE_LIMITS", "{")
    with pytest.raises(InvalidConfiguration, match=r"^environment: RECONVERGE_LIMITS: is not JSON"):
        load(shop)
    monkeypatch.delenv("RECONVERGE_LIMITS")
    monkeypatch.setenv("RECONVERGE_MAX_KEYS", "many")
    with pytest.raises(InvalidConfiguration, match=r"^environment: RECONVERGE_MAX_KEYS: ") as told:
        load(shop)
    assert "many" not in str(told.value)
    monkeypatch.delenv("RECONVERGE_MAX_KEYS")
    with pytest.raises(UnknownHub) as unknown:
        load(shop, hub="carrier://:pigeon@loft")
    assert "pigeon" not in str(unknown.value)
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        load(shop.with_name("missing.toml"))
    with pytest.raises(InvalidConfiguration, match=r"ends in none of \.toml, \.yaml"):
        load(Path(__file__))


# -------------------------------------------------------------------- what follows


@pytest.mark.parametrize("lasts", ["'10 minutes'", "600"])
def test_a_file_says_when_a_limit_bans_and_a_reload_cannot_change_that(tmp_path: Path, lasts: str) -> None:
    """Three refusals ban a key for ten minutes; a reload keeps the ban, and raises if the file says another one."""
    file = tmp_path / "shop.toml"
    text = f"""[limits.login]\nlimit = "1/minute"\nblock_after = "3/minute"\nblock_for = {lasts}\n"""
    file.write_text(text)
    configuration = load(file)
    login = configuration.agent.limiter("login")
    for _ in range(4):
        login.allow("ada")
    file.write_text(text.replace("1/minute", "9/minute"))
    configuration.reload()
    banned = login.test("ada")
    file.write_text(text.replace("3/minute", "4/minute"))

    assert "login/ban" == banned.binding
    assert 599 < banned.retry_after <= 600
    with pytest.raises(InvalidConfiguration, match=r"line 3: limits\.login\.block_after: cannot change"):
        configuration.reload()


def test_a_reload_follows_the_file_and_forgets_nothing(shop: Path) -> None:
    """Quotas, switches, the pace, and limits that there were not."""
    shop.write_text(SHOP.partition("[limits.vip]")[0])
    configuration = load(shop)
    login, kept = configuration.agent.limiter("login"), configuration.agent.limiter("login").allow
    assert 5 == admitted_of(login, 9)
    text = SHOP.partition("[limits.vip]")[0]
    text = text.replace("5/minute", "8/minute").replace("0.2", "0.4").replace('"shadow"', '"off"')
    shop.write_text('switch = "shadow"\n' + text + '\n[limits.new]\nlimit = "3/minute"\n')
    configuration.reload()

    assert ("shadow", "off") == (login.switched, configuration.agent.limiter("api").switched)
    assert 400_000_000 == configuration.agent._kernel.interval_ns
    assert 3 == sum(kept("ada") for _ in range(9))
    assert 3 == configuration.agent.limiter("new").limit.quota


@pytest.mark.parametrize("algorithm", ["leaky-bucket", "smooth-bursty"])
def test_a_reload_changes_a_paced_limit(shop: Path, algorithm: str) -> None:
    """Its quota and its burst; to another algorithm it cannot change."""
    text = f'''hub = "memory://"
[limits.calls]
limit = "10/s burst 5"
algorithm = "{algorithm}"
'''
    shop.write_text(text)
    configuration = load(shop)
    shop.write_text(text.replace("10/s burst 5", "20/s burst 8"))
    configuration.reload()

    limit = configuration.agent.limiter("calls").limit
    assert (20, 8, algorithm) == (limit.quota, limit.burst, limit.algorithm)
    shop.write_text(text.replace(algorithm, "gcra"))
    with pytest.raises(InvalidConfiguration, match="cannot change while it is in use"):
        configuration.reload()


def test_what_was_switched_by_hand_stays_until_the_file_says_something_new(shop: Path) -> None:
    """A reload for another reason does not undo a kill switch."""
    configuration = load(shop)
    configuration.agent.switch("off")
    shop.write_text(SHOP.replace("0.2", "0.4"))
    configuration.reload()
    switched = [configuration.agent.switched]
    shop.write_text('switch = "shadow"\n' + SHOP)
    configuration.reload()
    switched.append(configuration.agent.switched)

    assert ["off", "shadow"] == switched


REFUSED: dict[str, tuple[Callable[[str], str], str]] = {
    "namespace": (lambda text: text.replace('"shop"', '"other"'), "namespace: cannot change"),
    "policy": (lambda text: text.replace('"strict"', '"balanced"'), "policy: cannot change"),
    "window": (lambda text: text.replace("1000/hour", "1000/day"), "limits.api.limit"),
    "a share": (lambda text: text.replace("2/minute", "3/minute"), "limits.vip.limit"),
    "no share any more": (lambda text: text.replace('parent = "login"', ""), "limits.vip.parent"),
    "one limit less": (
        lambda text: text.partition("[limits.vip]")[0],
        "the limit 'vip' is missing now, but requests may still use it",
    ),
    "a new share": (lambda text: text + '[limits.new]\nlimit = "1/minute"\nparent = "login"\n', "limits.new.parent"),
    "too slow": (lambda text: text.replace("0.2", "1000.0"), "sync_interval"),
}


@pytest.mark.parametrize(("edit", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_follow_changes_nothing_at_all(shop: Path, edit: Callable[[str], str], problem: str) -> None:
    """The rest of the file may change anything, before and after: new limits, another quota, a switch."""
    configuration = load(shop)
    before = state_of(configuration.agent)
    text = edit(SHOP).replace("10/second", "20/second").replace('switch = "shadow"', 'switch = "off"')
    text = text.replace("[limits]\n", '[limits]\nearlier = "1/minute"\n')
    shop.write_text('switch = "off"\n' + text + '\n[limits.later]\nlimit = "1/minute"\n')
    with pytest.raises(InvalidConfiguration) as told:
        configuration.reload()

    assert problem in str(told.value)
    assert before == state_of(configuration.agent)


@pytest.fixture
def kept_handler() -> Iterator[None]:
    """Restores the handler of SIGHUP afterwards."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("kept_handler")
def test_sighup_reloads_and_a_wrong_file_is_logged(shop: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever listened to it before hears it as well; nothing ends."""
    heard: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _frame: heard.append(number))
    configuration = load(shop)
    configuration.reload_on_sighup()
    shop.write_text(SHOP.replace("10/second", "20/second"))
    signal.raise_signal(signal.SIGHUP)
    eventually(lambda: configuration.agent.limiter("api").limit.quota == 20, "the new quota")
    shop.write_text("polcy = 1")
    signal.raise_signal(signal.SIGHUP)
    eventually(lambda: "not reloaded" in caplog.text, "what is wrong")

    assert "shop.toml, line 1: polcy: there is no such setting" in caplog.text
    assert "Traceback" not in caplog.text
    assert 20 == configuration.agent.limiter("api").limit.quota
    assert [signal.SIGHUP] * 2 == heard


def test_totals_stay_exact_while_quotas_change_under_traffic(redis_server: RedisServer, tmp_path: Path) -> None:
    """Two agents, four threads, forty reloads: the hub knows of exactly what was admitted, and all of it counts."""
    path = tmp_path / "shop.toml"

    def write(quota: int, pace: float) -> None:
        path.write_text(
            f'hub = "{redis_server.url}"\nsync_interval = {pace}\n[limits]\n'
            f'login = "{quota}/day"\nburst = "{quota}/day burst {quota}"\n'
        )

    write(2000, 0.02)
    fleet: list[Configuration] = [load(path, exchange_timeout=5.0, stop_timeout=10.0) for _ in range(2)]
    admitted = {"login": 0, "burst": 0}
    ended, lock = threading.Event(), threading.Lock()

    def traffic(configuration: Configuration, name: str) -> None:
        allow, count = configuration.agent.limiter(name).allow, 0
        while not ended.is_set():
            count += sum(allow(f"user-{number}") for number in range(20))
        with lock:
            admitted[name] += count

    threads = [threading.Thread(target=traffic, args=(each, name)) for each in fleet for name in admitted]
    for thread in threads:
        thread.start()
    for number in range(20):
        write((3000, 1000, 5000, 500)[number % 4], (0.02, 0.05)[number % 2])
        for configuration in fleet:
            before = configuration.agent.stats().exchanges[0].exchanges
            configuration.reload()
            eventually(
                lambda before=before, agent=configuration.agent: agent.stats().exchanges[0].exchanges > before,  # type: ignore[misc]  # bound
                "an exchange between two reloads",
            )
    ended.set()
    for thread in threads:
        thread.join()
    for configuration in fleet:
        configuration.agent.stop()
    at_hub = {name: net_at(redis_server.url, name) for name in admitted}

    assert admitted == at_hub
    assert [0, 0] == [configuration.agent.stats().bugs for configuration in fleet]
    assert [{}, {}] == [configuration.agent.stats().exchanges[0].failures for configuration in fleet]


def test_the_interval_of_one_limit_follows_the_file(shop: Path) -> None:
    """Another one, none any more, and one where there was none."""
    configuration = load(shop)
    api, login = configuration.agent.limiter("api"), configuration.agent.limiter("login")
    shop.write_text(SHOP.replace("sync_interval = 0.7", "sync_interval = 0.05"))
    configuration.reload()
    assert 50_000_000 == api.control.table.interval_ns
    shop.write_text(
        SHOP.replace("sync_interval = 0.7\n", "").replace('"5/minute"', '{limit="5/minute", sync_interval=1}')
    )
    configuration.reload()

    assert (200_000_000, 1_000_000_000) == (api.control.table.interval_ns, login.control.table.interval_ns)


@pytest.mark.parametrize("text", ["\ufeff" + SHOP, SHOP.replace("\n", "\r\n")], ids=["with a mark", "with CRLF"])
def test_a_file_from_another_system_says_the_same(tmp_path: Path, text: str) -> None:
    """Editors there begin it with a mark, and end its lines with two characters."""
    (tmp_path / "shop.toml").write_bytes(text.encode())

    assert {"login", "api", "vip"} == set(load(tmp_path / "shop.toml").agent.limiters)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A directory, a pipe that nobody writes to, a name that cannot be."""
    (tmp_path / "directory.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")

    for path in (tmp_path / "directory.toml", tmp_path / "pipe.toml", tmp_path / "missing.toml", "a\0b.toml"):
        with pytest.raises(InvalidConfiguration, match="cannot be read"):
            load(path)
