"""Goal: what is wrong with a file, a variable or a storage's URI is told in our words, with what to write instead.

Method: a table of wrong files and variables, as newcomers write them, each with the words that the message must have.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from reconverge import Agent, InvalidSetting
from reconverge.integrations.clients.outgoing import Outgoing
from reconverge.integrations.config import load
from reconverge.integrations.config.positions import InvalidConfiguration
from reconverge.integrations.decorators import limited
from reconverge.integrations.dropin.shared_agent import agent_at, settings_at
from reconverge.integrations.web.outcome import RateLimited

pytestmark = pytest.mark.usefixtures("bare_environment")


FILES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a number for a limit": ("a.toml", "[limits]\nlogin = 5\n", ("limits.login: 5", "a limit string such as")),
    "a number as its limit": ("a.toml", "limits.login.limit = 5\n", ("limits.login.limit: 5", "'100/minute'")),
    "a list of numbers": ("a.toml", "limits.login = [5]\n", ("limits.login.limit: [5]", "list of limit strings")),
    "limits that are no table": ("a.toml", "limits = '5/minute'\n", ("limits: '5/minute'", "table of limits by name")),
    "a setting of the agent below limits": (
        "a.toml",
        "[limits]\nlogin = '5/minute'\nsync_interval = 0.2\n",
        ("line 3", "sync_interval is a setting of the agent", "write it above"),
    ),
    "a setting of the agent in a limit": (
        "a.toml",
        "[limits.login]\nlimit = '5/minute'\nnamespace = 'shop'\n",
        ("line 3", "a setting of the agent", "above [limits]"),
    ),
    "a misspelt limit": (
        "a.toml",
        "[limits.login]\nlimt = '5/minute'\n",
        ("line 2", "limits.login.limt: there is no such setting", "did you mean 'limit'?"),
    ),
    "a misspelt setting": ("a.toml", "sync_intervall = 1\n", ("did you mean 'sync_interval'?",)),
    "no limit": ("a.toml", "[limits.login]\npolicy = 'strict'\n", ("is missing; write limit = '100/minute'",)),
    "a switch that YAML takes for a truth": (
        "a.yaml",
        "switch: off\n",
        ("switch: must be a string", "in quotes", "truth values"),
    ),
    "a limit's switch likewise": (
        "a.yaml",
        "limits:\n  login:\n    limit: 5/minute\n    switch: off\n",
        ("line 4", "limits.login.switch: False is wrong", "in quotes"),
    ),
    "a misspelt policy": ("a.toml", "policy = 'strikt'\n", ("did you mean 'strict'?",)),
    "text for a number": ("a.toml", "max_keys = 'many'\n", ("max_keys: must be a whole number",)),
    "text for a duration": ("a.toml", "sync_interval = 'soon'\n", ("sync_interval: must be a number",)),
    "text for a truth": ("a.toml", "sigterm = 'maybe'\n", ("sigterm: must be true or false",)),
    "half a JSON": ("a.json", '{"limits": {\n', ("is not JSON", "line 2")),
    "a comma at the end of JSON": ("a.json", '{"namespace": "a",\n}', ("is not JSON", "line")),
    "a number that is none in JSON": ("a.json", '{"sync_interval": NaN}', ("is not JSON", "NaN")),
    "half a YAML": ("a.yaml", "limits: [\n", ("is not YAML",)),
}
VARIABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "nothing": ("", ("RECONVERGE_LIMITS: is empty", "unset it", '{"login": "100/minute"}')),
    "no JSON": ("login=5/minute", ("RECONVERGE_LIMITS: is not JSON", '{"login": "100/minute"}')),
    "a list": ("[1]", ("RECONVERGE_LIMITS: [1] is not a table of limits", '{"login": "100/minute"}')),
    "a misspelt setting": (
        '{"login": {"limt": "5/minute"}}',
        ("RECONVERGE_LIMITS: login.limt: there is no such setting", "did you mean 'limit'?"),
    ),
    "a number": ('{"login": 5}', ("RECONVERGE_LIMITS: login: 5 is wrong", "limit string")),
    "a wrong limit": ('{"login": "5/minuet"}', ("RECONVERGE_LIMITS: login.limit", "did you mean 'minute'?")),
}


@pytest.mark.parametrize("mistake", FILES)
def test_a_wrong_file_is_told_in_our_words(tmp_path: Path, mistake: str) -> None:
    """The fact, the place, and what to write."""
    name, text, words = FILES[mistake]
    (tmp_path / name).write_text(text)

    with pytest.raises(InvalidConfiguration) as caught:
        load(tmp_path / name)

    assert [] == [word for word in words if word not in str(caught.value)]
    assert "Input should be" not in str(caught.value)


@pytest.mark.parametrize("with_file", [False, True])
@pytest.mark.parametrize("mistake", VARIABLES)
def test_a_wrong_variable_is_told_as_the_environments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mistake: str, *, with_file: bool
) -> None:
    """By its name and what is wrong in it, also where a file says limits, too."""
    said, words = VARIABLES[mistake]
    monkeypatch.setenv("RECONVERGE_LIMITS", said)
    (tmp_path / "a.toml").write_text("namespace = 'shop'\n[limits]\nlogin = '9/minute'\n")

    with pytest.raises(InvalidConfiguration) as caught:
        load(tmp_path / "a.toml" if with_file else None)

    assert "environment" == caught.value.source
    assert [] == [word for word in words if word not in str(caught.value)]


def test_several_quotas_may_be_a_list_in_a_file(tmp_path: Path) -> None:
    """In place of a limit string, and in its table."""
    (tmp_path / "a.toml").write_text(
        "[limits]\nlogin = ['5/minute', '9/hour as hourly']\n[limits.api]\nlimit = ['1/second', '8/day']\n"
    )
    configuration = load(tmp_path / "a.toml")

    assert ["login", "login#hourly"] == list(configuration.agent.limiter("login").quotas)
    assert ["api", "api#2"] == list(configuration.agent.limiter("api").quotas)


def test_json_that_is_indented_by_tabs_is_read(tmp_path: Path) -> None:
    """YAML would refuse it."""
    (tmp_path / "a.json").write_text('{\n\t"limits": {\n\t\t"login": "5/minute"\n\t}\n}\n')

    assert 5 == load(tmp_path / "a.json").agent.limiter("login").limit.quota


def test_an_unknown_option_of_a_storage_is_told_with_all_that_are_known() -> None:
    """Those of the hub and those of a storage, and the nearest."""
    hub, settings = settings_at("reconverge+redis://localhost:6379/0?polcy=strict", {})

    with pytest.raises(InvalidSetting) as caught:
        agent_at(hub, settings)

    assert "polcy; known: db; settings of a storage: " in str(caught.value)
    assert "exchange_timeout" in str(caught.value)
    assert "did you mean 'policy'?" in str(caught.value)


def test_what_tunes_a_client_in_a_uri_is_passed_over_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """URIs of other storages have such options, in them or beside."""
    hub, settings = settings_at("reconverge+redis://localhost:6379/1?socket_timeout=5&policy=strict&db=1", {})

    assert "redis://localhost:6379/1?db=1" == hub
    assert {"policy": "strict", "namespace": "limits"} == settings
    assert ["socket_timeout"] == [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]


def test_a_duration_may_be_a_timedelta_in_the_arguments_of_load() -> None:
    """Of the agent and of a limit, as for `Agent` itself."""
    agent = load(
        sync_interval=timedelta(milliseconds=200),
        limits={"login": {"limit": "5/minute", "sync_interval": timedelta(milliseconds=400)}},
    ).agent

    assert 200_000_000 == agent._kernel.interval_ns
    assert 400_000_000 == agent.limiter("login").control.table.interval_ns


def test_a_thread_that_no_signal_reaches_is_told() -> None:
    """Python has signals handled in the main thread alone."""
    configuration = load(hub="memory://")

    with (
        ThreadPoolExecutor() as pool,
        pytest.raises(InvalidSetting, match="call it where the program starts"),
    ):
        pool.submit(configuration.reload_on_sighup).result()


def test_a_function_may_wait_for_a_timedelta() -> None:
    """A call that has no turn within it is refused."""
    agent = Agent("memory://")

    @limited("1/hour", agent=agent, wait=timedelta(0))
    def report() -> int:
        return 7

    assert 7 == report()
    with pytest.raises(RateLimited):
        report()


def test_a_call_to_another_server_may_wait_for_a_timedelta() -> None:
    """A negative one is refused in seconds, as every other."""
    limiter = Agent("memory://").limit("search", "1/hour")

    assert 60.0 == Outgoing(limiter, timeout=timedelta(minutes=1))._timeout_s
    with pytest.raises(InvalidSetting, match=r"timeout=-86400\.0: must be a number of seconds of 0 or more"):
        Outgoing(limiter, timeout=timedelta(-1))
