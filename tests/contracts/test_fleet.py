"""Goal: each process of a fleet obeys a plan that is changed by command or over HTTP, and use stays what it was.

Method: four processes at a real Redis, which decide by contracts that they follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reconverge import Agent, InvalidSetting
from reconverge.cli.app import app
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from tests.contracts.operator import publish, put_over_http
from tests.support.agents import net_at
from tests.support.commands.checked import said_by
from tests.support.programs.contracts import DAILY, PLANS, QUOTA
from tests.support.programs.process import Process
from tests.support.published import SECRET
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

FLEET = 4
EVERYONE_FREE = {"plans": PLANS, "unknown": "free"}


def set_by_command(url: str, plan: str) -> None:
    """Sets a plan as an operator does on a terminal."""
    words = ["contracts", "set", "acme", plan, "--hub", url, "--namespace", "shop", "--author", "grace"]
    said = CliRunner().invoke(app, words, env={"RECONVERGE_SETTINGS_SECRET": SECRET})

    assert 0 == said.exit_code, said.output


@pytest.mark.slow
def test_four_processes_obey_a_plan_and_keep_the_use(redis_server: RedisServer) -> None:
    """Free, pro by command, free over HTTP, pro again: 20 in an hour, then 40 more, then none, by all of them."""
    pro_by_command = partial(set_by_command, plan="pro")
    free_over_http = partial(put_over_http, customer="acme", contract={"plan": "free"})
    published = partial(publish, document=EVERYONE_FREE)
    changes: list[Callable[[str], None]] = [published, pro_by_command, free_over_http, pro_by_command]
    processes = [Process("decide", redis_server.url, SECRET, "4", "30", module="contracts") for _ in range(FLEET)]
    admitted: list[int] = []
    try:
        assert ["ready"] * FLEET == [process.says() for process in processes]
        for change in changes:
            change(redis_server.url)
            obeyed = [process.says().split()[0] for process in processes]
            assert ["obeyed"] * FLEET == obeyed
            for process in processes:
                process.go_on()
            admitted.append(sum(int(process.says().split()[1]) for process in processes))
        ended = [process.ends() for process in processes]
    finally:
        for process in processes:
            process.__exit__(None, None, None)

    assert [20, 40, 0, 0] == admitted
    assert [(0, [])] * FLEET == ended
    assert 60 == net_at(redis_server.url, "requests", namespace="shop")


@pytest.fixture(params=["one server", "a cluster of 16 shards"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the hub of a fleet is; a cluster has 16 shards unless its URL says otherwise."""
    if request.param == "one server":
        yield request.getfixturevalue("redis_server").url
        return
    cluster: RedisCluster = request.getfixturevalue("shared_cluster")
    cluster.flush()
    yield cluster.url
    cluster.flush()


@pytest.mark.slow
def test_four_processes_forget_what_a_customer_has_used(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one command, which ends when the hub has taken it: 20 a day, and 20 more when all have heard of it."""
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    file = tmp_path / "contracts.json"
    file.write_text(json.dumps({"plans": DAILY, "unknown": "free"}))
    at = "--hub", url, "--namespace", "shop"
    assert 0 == said_by("contracts", "publish", file, *at).status
    processes = [Process("come_again", url, SECRET, "2", module="contracts") for _ in range(FLEET)]
    admitted: list[int] = []
    try:
        for last in (False, True):
            assert ["free"] * FLEET == [process.says() for process in processes]
            for process in processes:
                process.go_on()
            admitted.append(sum(int(process.says().split()[1]) for process in processes))
            if not last:
                said = said_by("contracts", "reset", "acme", *at)
                assert (0, "acme: forgotten on all nodes: requests\n") == (said.status, said.stdout)
        ended = [process.ends() for process in processes]
    finally:
        for process in processes:
            process.__exit__(None, None, None)

    assert [QUOTA, QUOTA] == admitted
    assert [(0, [])] * FLEET == ended


def test_the_last_contracts_hold_while_the_hub_is_away(redis_server: RedisServer, tmp_path: Path) -> None:
    """Also in a process that starts meanwhile, if it has kept them in a file; a secret has to be given."""
    file = tmp_path / "contracts"
    publish(redis_server.url, EVERYONE_FREE)
    url = redis_server.url
    with Agent(url, namespace="shop", sync_interval=0.05) as agent:
        contracts = Contracts(agent, {"plans": {"p": {"limits": {"requests": "1/hour"}}}, "unknown": "p"})
        reader = follow_hub(contracts, secret=SECRET, file=file)
        eventually(lambda: reader.stats().version == 1, "the first version")
        eventually(file.exists, "that it is kept")  # which is done after it is obeyed, on a thread

        assert 1 == contracts.version
    away = Agent("redis://127.0.0.1:1/0", namespace="shop")
    late = Contracts(away, {"plans": {"p": {"limits": {"requests": "1/hour"}}}, "unknown": "p"})
    follow_hub(late, secret=SECRET, file=file)

    assert 1 == late.version
    assert 20 == late.document.plans["free"].limits["requests"].limit.quota
    with pytest.raises(InvalidSetting, match="contracts are signed with"):
        follow_hub(late)
