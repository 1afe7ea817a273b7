"""Goal: the fleet of `examples/compose` starts, is watched, and is found at the addresses that its command prints.

Method: Docker is not needed. The files are read as Compose, Prometheus and Grafana read them; the commands of the
services run as plain processes beside a Redis of the test; `start` runs with a program in the place of `docker`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.support.hubs.parrot import Parrot
from tests.support.servers import RedisServer, free_port, wait_until

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "examples" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((PLACE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODES = ("shop-1", "shop-2")
PROGRAMS = {"uvicorn": ["-m", "uvicorn"], "reconverge": ["-m", "reconverge"], "python": []}


def published(service: str) -> list[tuple[str, int, int]]:
    """The address, the port on the machine and the port in the container of a service."""
    split = [text.split(":") for text in SERVICES[service].get("ports", ())]
    return [(address, int(outside), int(inside)) for address, outside, inside in split]


def listens_at(service: str) -> int:
    """The port that a service's own command or image listens at."""
    given = re.search(r"--port (\d+)", SERVICES[service].get("command", ""))
    return int(given[1]) if given else {"console": 8200, "prometheus": 9090, "grafana": 3000}[service]


@contextmanager
def running(service: str, redis: RedisServer, *, port: int = 0, nodes: str = "") -> Iterator[subprocess.Popen[str]]:
    """A service's command as a process here: at another port, and with the test's Redis."""
    of_service = SERVICES[service]
    command = of_service["command"].replace("redis://redis:6379/0", redis.url).replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    if port:
        command = re.sub(r" --port \d+", "", command) + f" --port {port}"
    program, *words = shlex.split(re.sub(r"http://shop-1.*", nodes, command))
    environment = {**os.environ, **of_service["environment"], "RECONVERGE_HUB": redis.url}
    process = subprocess.Popen(
        [sys.executable, *PROGRAMS[program], *words], cwd=PLACE, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def body(url: str, customer: str = "") -> str:
    """Returns the answer of a service; empty if there is none yet."""
    try:
        with urlopen(Request(url, headers={"x-api-key": customer}), timeout=5) as response:  # noqa: S310  # the test's own
            return str(response.read().decode())
    except HTTPError as error:
        return str(error.code)
    except (URLError, OSError):
        return ""


def test_every_file_that_the_services_mount_or_build_from_is_there() -> None:
    """Paths are relative to the compose file."""
    mounted = [text.rsplit(":", 2)[0] for each in SERVICES.values() for text in each.get("volumes", ())]
    build = SERVICES["shop-1"]["build"]

    assert len(mounted) == 3
    assert all((PLACE / path).exists() for path in mounted)
    assert (PLACE / build["context"]).resolve() == ROOT
    copied = (PLACE / "Dockerfile.dockerignore").read_text()
    assert all((ROOT / path).exists() for path in re.findall(r"^!(.+)$", copied, re.MULTILINE))
    assert (ROOT / build["dockerfile"]).is_file()


def test_the_image_has_every_extra_that_its_programs_import() -> None:
    """Of the extras of the project, by their names."""
    dockerfile = (PLACE / "Dockerfile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    said = re.findall(r"\[([a-z,]+)\]", dockerfile)

    assert len(said) == 2
    assert said[0] == said[1]
    assert {"redis", "fastapi", "prometheus", "console", "cli"} == set(said[0].split(","))
    assert set(said[0].split(",")) <= set(extras)
    assert any("uvicorn" in each for each in extras["console"])


def test_one_service_builds_the_image_that_the_others_name() -> None:
    """Or the image would be built as often as there are services."""
    building = [name for name, each in SERVICES.items() if "build" in each]
    named = [name for name, each in SERVICES.items() if each["image"] == SERVICES["shop-1"]["image"]]

    assert ["shop-1"] == building
    assert ["shop-1", "shop-2", "visitors", "console"] == named
    assert {"never"} == {SERVICES[name]["pull_policy"] for name in named if name not in building}


def test_what_the_command_waits_for_says_when_it_answers() -> None:
    """Each service with a port that is printed has a check that asks for a page at that port."""
    for service in SERVICES:
        for _, _, inside in published(service):
            assert f"http://127.0.0.1:{inside}/" in SERVICES[service]["healthcheck"]["test"][-1], service


def test_visitors_outlive_a_node_that_answers_nonsense(redis_server: RedisServer) -> None:
    """And one that ends: its connections are reset."""
    with (
        Parrot(b"what is this\r\n\r\n") as odd,
        running("visitors", redis_server, nodes=f"{at(odd.port)} {at(1)}") as all_of,
    ):
        assert all_of.stdout is not None
        seen = [all_of.stdout.readline().split()[0] for _ in range(4)]

    assert ["ada", "ada", "bob", "ada"] == seen


def at(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def test_no_port_is_open_to_other_machines() -> None:
    """The tokens of the example are public."""
    addresses = [address for service in SERVICES for address, _, _ in published(service)]

    assert ["127.0.0.1"] * 5 == addresses


def test_each_published_port_leads_to_the_one_that_its_service_listens_at() -> None:
    """Also of those whose images decide it."""
    for service in SERVICES:
        for _, _, inside in published(service):
            assert listens_at(service) == inside, service


def test_prometheus_reads_each_node_and_grafana_reads_prometheus() -> None:
    """By the names and ports of the services."""
    scraped = yaml.safe_load((PLACE / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for job in scraped for each in job["static_configs"] for target in each["targets"]]
    sources = yaml.safe_load((PLACE / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    boards = yaml.safe_load((PLACE / "grafana/provisioning/dashboards/reconverge.yaml").read_text())["providers"]
    places = dict(text.rsplit(":", 2)[1::-1] for text in SERVICES["grafana"]["volumes"])

    assert [f"{node}:{listens_at(node)}" for node in NODES] == targets
    assert [f"http://prometheus:{listens_at('prometheus')}"] == [each["url"] for each in sources]
    (board,) = (PLACE / places[boards[0]["options"]["path"]]).glob("*.json")
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert f"{boards[0]['options']['path']}/{board.name}" == home
    assert "reconverge" == json.loads(board.read_text())["title"]


def test_the_command_ends_by_printing_where_everything_is(tmp_path: Path) -> None:
    """It builds, starts and waits first; and each address is one that a service publishes."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "docker $*; $(ls compose.yaml)"\n')
    docker.chmod(0o755)

    ran = subprocess.run(
        [PLACE / "start"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )

    assert ran.stdout.startswith("docker compose up --build --detach --wait; compose.yaml\n")
    ports = {int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)/", ran.stdout)}
    assert {outside for service in SERVICES for _, outside, _ in published(service)} == ports
    token = SERVICES["console"]["environment"]["RECONVERGE_CONSOLE_TOKENS"]
    assert re.search(r"with the token (\S+)", ran.stdout)[1] == re.fullmatch(r"you: (\S+), write", token)[1]  # type: ignore[index]


@pytest.mark.slow
def test_the_services_start_and_the_nodes_share_one_limit(own_redis: RedisServer) -> None:
    """As plain processes: the console answers, and a customer is refused by the two nodes together."""
    ports = [free_port() for _ in NODES]
    console = free_port()
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with ExitStack() as stack:
        for node, port in zip(NODES, ports, strict=True):
            stack.enter_context(running(node, own_redis, port=port))
        stack.enter_context(running("console", own_redis, port=console))
        wait_until(lambda: all(body(f"{url}/metrics") for url in urls), "the nodes", 60)
        wait_until(lambda: "<" in body(f"http://127.0.0.1:{console}/"), "the console", 60)
        visitors = stack.enter_context(running("visitors", own_redis, nodes=" ".join(urls)))
        assert visitors.stdout is not None
        seen = [visitors.stdout.readline().split() for _ in range(5)]
        visitors.terminate()  # between two visits, so that each visit that was counted has been seen
        # Faster than the visitors, so that a busy machine does not let a minute pass meanwhile.
        asked = [body(f"{url}/items", "mia") for url in urls * 60]
        metrics = [body(f"{url}/metrics") for url in urls]

    assert [["ada", "200"], ["ada", "200"], ["bob", "200"], ["ada", "200"], ["eve", "200"]] == seen
    assert {"[1,2,3]", "429"} == set(asked)
    assert "429" == asked[-1]
    assert 60 >= asked.count("[1,2,3]") >= 50
    counted = [re.search(r'requests_total\{limit="items",result="admitted"\} (\S+)', each) for each in metrics]
    admitted = [float(each[1]) for each in counted if each is not None]
    assert all(admitted)
    assert len(NODES) == len(admitted)
    assert len(seen) + asked.count("[1,2,3]") == sum(admitted)
