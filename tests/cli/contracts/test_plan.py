"""Goal: what `reconverge contracts plan` foretells is what `reconverge replay` then shows, and is told briefly.

Method: both commands on the same requests of public recordings, on a lone node, as that is what is rehearsed: what is
counted alike wherever a window begins, because a replay begins at no round moment. A replay takes real time, and a
machine that is busy makes a request late, by a second of the recording in 33 ms; so what is foretold is about the
moments in which requests were made. Requests in doubt ask: a node that refuses them refuses the more, the later the hub
answers. Both sides of how much may be refused; and what is given wrongly.
"""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reconverge.cli.app import app
from reconverge.cli.replay import fleet
from reconverge.cli.replay.fleet import Progress, ReplayOutcome, Setup, run
from reconverge.cli.replay.judgement import arrivals_of
from reconverge.clock import SECOND_NS
from tests.support.commands.checked import said_by

plan = partial(said_by, "contracts", "plan")

OK, MISTAKE, TOO_MANY, INTERRUPTED = 0, 2, 3, 130
ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "guide" / "contracts.md"
DATA = ROOT / "examples" / "data"
ACCESS = DATA / "access-2015.csv.gz"
CHAT = DATA / "llm-conv-2023.csv.gz"
ALONE = "--nodes", "1", "--in-doubt", "ask:5s"
CONTRACTS = """
unknown: free
plans:
  free:
    limits:
      api: {limit: LIMIT, algorithm: sliding-log}
"""


def contracts(directory: Path, limit: str, name: str = "contracts.yaml", text: str = CONTRACTS) -> Path:
    """A file with one plan for all."""
    path = directory / name
    path.write_text(text.replace("LIMIT", limit))
    return path


def recording(directory: Path, *seconds: float, head: str = "t_s,client", rest: str = ",ada") -> Path:
    """A recording of one customer."""
    path = directory / "recorded.csv"
    path.write_text("\n".join([head, *(f"{second}{rest}" for second in seconds)]) + "\n")
    return path


def figures(*words: object, status: int = OK) -> dict[str, Any]:
    """The same as JSON."""
    said = plan(*words, "--json")

    assert status == said.status, said.all
    read: dict[str, Any] = json.loads(said.stdout)
    return read


class Replay:
    """A replay on one node: its figures, and a recording of the moments in which it made its requests."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
        outcomes: list[ReplayOutcome] = []

        def kept(setup: Setup, watch: Callable[[Progress], None]) -> ReplayOutcome:
            outcomes.append(run(setup, watch))
            return outcomes[-1]

        monkeypatch.setattr(fleet, "run", kept)
        result = CliRunner().invoke(app, ["replay", *map(str, words), *ALONE, "--json"])

        assert OK == result.exit_code, result.output
        self.shown: dict[str, Any] = json.loads(result.stdout)
        self.made = directory / "made.csv"
        (outcome,) = outcomes
        arrivals = sorted(arrivals_of(outcome, 0), key=lambda one: one.arrived_ns)
        begin_ns, speed = arrivals[0].arrived_ns, outcome.setup.speed
        rows = (
            f"{(one.arrived_ns - begin_ns) / SECOND_NS * speed},{one.key},{one.cost},{one.settle}" for one in arrivals
        )
        self.made.write_text("\n".join(["t_s,client,cost,settle", *rows]) + "\n")


@pytest.mark.slow
def test_a_halved_limit_refuses_in_a_replay_what_was_foretold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 1 % of the requests of a public web site; and what a central limiter admits of them is just that."""
    now, half = contracts(tmp_path, "60/minute", "now.yaml"), contracts(tmp_path, "30/minute")

    replay = Replay(
        *(tmp_path, monkeypatch, ACCESS, "--key", "client", "--limit", "30/minute", "--algorithm", "sliding-log"),
        *("--speed", 600, "--max-gap", 61),
    )
    shown = replay.shown
    foretold = figures(half, replay.made, "--customer", "client", "--current", now)

    assert 0 < foretold["newly_refused"]
    refused = foretold["newly_refused"] + foretold["refused_by_both"]
    assert refused == pytest.approx(shown["refused"], abs=0.01 * shown["requests"])
    assert refused == pytest.approx(shown["requests"] - shown["ideal_admitted"], abs=0.01 * shown["requests"])


@pytest.mark.slow
def test_a_halved_budget_of_tokens_refuses_in_a_replay_what_was_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context is charged before a request, and what was generated once it is over."""
    chat = tmp_path / "chat.csv"
    with gzip.open(CHAT, "rt") as recorded:  # its first ten minutes
        chat.write_text("".join(islice(recorded, 2501)))
    text = CONTRACTS.replace("sliding-log", "token-bucket").replace("api", "tokens")
    now, half = (contracts(tmp_path, f"{each}/minute", f"{each}.yaml", text) for each in (480_000, 240_000))
    columns = ("--cost", "tokens=cost", "--settle", "tokens=settle")

    replay = Replay(
        *(tmp_path, monkeypatch, chat, "--key", "*", "--limit", "240000/minute", "--algorithm", "token-bucket"),
        *("--speed", 30, "--cost", "context_tokens", "--settle", "generated_tokens"),
    )
    shown = replay.shown
    foretold = figures(half, replay.made, "--customer", "*", "--current", now, *columns)

    assert 0 < foretold["newly_refused"]
    refused = foretold["newly_refused"] + foretold["refused_by_both"]
    assert refused == pytest.approx(shown["refused"], abs=0.01 * shown["requests"])
    assert refused == pytest.approx(shown["requests"] - shown["ideal_admitted"], abs=0.01 * shown["requests"])


def test_the_example_in_the_documents_prints_what_is_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are those of the document, and so is the command line."""
    section = DOCUMENT.read_text().partition("## Rehearse a change")[2]
    blocks = re.findall(r"```(?:yaml|console)\n(.*?)```", section, re.DOTALL)
    current, candidate, example = blocks[:3]
    command, _, expected = example.partition("\n")
    (tmp_path / "current.yaml").write_text(current)
    (tmp_path / "contracts.yaml").write_text(candidate)
    (tmp_path / ACCESS.name).symlink_to(ACCESS)
    monkeypatch.chdir(tmp_path)

    said = plan(*command.removeprefix("$ reconverge contracts plan ").split())

    assert TOO_MANY == said.status
    assert expected.splitlines() == [line.rstrip() for line in said.stdout.splitlines()]


@pytest.mark.parametrize(
    ("most", "status"), [("369", OK), ("368", TOO_MANY), ("3.69%", OK), ("3.68%", TOO_MANY), ("0", TOO_MANY)]
)
def test_a_change_that_refuses_too_much_ends_with_a_status_of_its_own(tmp_path: Path, most: str, status: int) -> None:
    """Of 10000 requests 369 are newly refused; as many may be. The figures are told in any case."""
    text = CONTRACTS.replace("sliding-log", "fixed-window")
    now, half = (contracts(tmp_path, each, f"{each[:2]}.yaml", text) for each in ("60/minute", "30/minute"))

    told = figures(half, ACCESS, "--customer", "client", "--current", now, "--max-newly-refused", most, status=status)

    assert (369, status == TOO_MANY) == (told["newly_refused"], told["too_many"])


def test_people_get_tables_that_fit_a_review_and_are_the_same_each_time(tmp_path: Path) -> None:
    """Progress goes to the error stream; without a terminal lines have a width of their own."""
    half = contracts(tmp_path, "30/minute")
    said = [plan(half, ACCESS, "--customer", "client", "--most", 2, "--max-newly-refused", "1%") for _ in range(2)]

    lines = said[0].stdout.splitlines()
    assert said[0].stdout == said[1].stdout
    assert TOO_MANY == said[0].status
    assert max(map(len, lines)) <= 120
    assert len(lines) < 40
    assert "access-2015.csv.gz: 10000 requests of 1753 customers" in lines[0]
    assert lines[0].endswith("contracts.yaml in place of no limits")
    assert ["c0096", "c1161"] == [line.split()[0] for line in lines if re.match(r"c\d+ +\d+ of ", line)]
    assert "Newly refused are 456 requests, and at most 100 may be." == lines[-1]
    assert "rehearsing 10000 requests" in said[0].stderr


def test_a_customer_is_shown_as_it_is_called_and_steers_no_terminal(tmp_path: Path) -> None:
    """Markup is text, and an escape sequence is written out."""
    trace = tmp_path / "odd.csv"
    trace.write_text("t_s,client\n" + "1,[red]ada\n" * 3 + "2,\x1b[31mbob\n" * 3)

    said = plan(contracts(tmp_path, "1/minute"), trace, "--customer", "client")

    assert "[red]ada" in said.stdout
    assert "'\\x1b[31mbob'" in said.stdout
    assert "\x1b" not in said.stdout


def test_moments_are_those_of_the_recording(tmp_path: Path) -> None:
    """In a table those of a calendar, if it is known when the recording began; in JSON always its own seconds."""
    file, trace = contracts(tmp_path, "1/hour"), recording(tmp_path, 0, 30, 7205, 7207.5)

    plain = figures(file, trace, "--customer", "client")["refused"][0]
    dated = plan(file, trace, "--customer", "client", "--began", "2026-11-23T12:00:00+01:00").stdout
    since = plan(file, recording(tmp_path, 1_763_892_000, 1_763_892_030), "--customer", "client").stdout

    assert (30, 7207.5, 0, 1) == tuple(
        plain[each] for each in ("first_s", "last_s", "busiest_hour_s", "in_busiest_hour")
    )
    assert "2026-11-23 11:00 to 2026-11-23 13:00" in dated
    assert "2025-11-23 10:00" in since


def test_plans_that_end_while_the_recording_goes_on_are_followed(tmp_path: Path) -> None:
    """It has to be said when the recording began."""
    text = """
plans:
  trial: {limits: {api: 10/hour}, lasts: PT1H, then: free}
  free: {limits: {api: 1/hour}}
customers:
  ada: {plan: trial, since: 2026-11-23T12:00:00Z}
"""
    file, trace = contracts(tmp_path, "", text=text), recording(tmp_path, 0, 1, 2, 7200, 7201)

    unsaid = plan(file, trace, "--customer", "client")
    told = figures(file, trace, "--customer", "client", "--began", "2026-11-23T12:00:00Z")

    assert MISTAKE == unsaid.status
    assert "began=None: the contracts name moments" in unsaid.stderr
    assert (1, 7201) == (told["newly_refused"], told["refused"][0]["first_s"])


def test_a_kind_and_a_fact_are_read_from_their_columns(tmp_path: Path) -> None:
    """A request of another kind costs more, and each user counts apart."""
    text = """
unknown: free
plans:
  free:
    limits:
      work: {limit: 5/hour, by: [customer, user], costs: {GET: 1, "*": 4}}
"""
    trace = tmp_path / "kinds.csv"
    trace.write_text("t_s,client,login,method\n1,ada,x,POST\n2,ada,y,POST\n3,ada,x,GET\n4,ada,x,PUT\n")
    columns = ("--customer", "client", "--fact", "user=login", "--kind", "method")

    told = figures(contracts(tmp_path, "", text=text), trace, *columns)

    assert [4] == [each["first_s"] for each in told["refused"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--customer", "user"], "has no column 'user'; its columns: t_s, client"),
        (["--cost", "tokens"], "has no column 'tokens'"),
        (["--cost", "tokens=bytes"], "cost='tokens=bytes': there is no such limit; known: api"),
        (["--cost", "a", "--cost", "b"], "cost='b': is a second column beside 'a' for the same limits; leave one out"),
        (["--cost", "=a"], "cost='=a': is neither COLUMN nor LIMIT=COLUMN"),
        (["--settle", "apii=bytes"], "did you mean 'api'?"),
        (["--settle-after", "5"], "settle_after=5.0: has no effect without --settle; add it"),
        (["--settle", "client", "--settle-after", "0"], "settle_after=0.0: must be above 0"),
        (["--fact", "user"], "fact='user': is not FACT=COLUMN"),
        (["--fact", "customer=client"], "fact='customer=client': is given by --customer already"),
        (
            ["--fact", "user=client"],
            "fact='user=client': no limit counts by this fact; limits count by the customer alone",
        ),
        (["--kind", "client"], "kind='client': names a column of kinds, but no limit has costs by kind"),
        (["--max-newly-refused", "some"], "max_newly_refused='some': is neither a number of requests"),
        (["--max-newly-refused", "-1"], "max_newly_refused='-1': is neither a number of requests"),
        (["--max-newly-refused", "101%"], "is more than all requests; give at most 100%"),
        (["--began", "noon"], "began='noon': is no moment like 2026-11-23T12:00:00Z"),
        (["--began", "1969-01-01"], "began='1969-01-01': is before 1970, or lets the recording end after 2100"),
        (["--most", "0"], "Invalid value for '--most'"),
        (["--current", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_what_is_given_wrongly_is_told_in_a_sentence(tmp_path: Path, arguments: list[str], said: str) -> None:
    """With status 2, and nothing on the output."""
    given = ["--customer", "client"] if "--customer" not in arguments else []

    done = plan(contracts(tmp_path, "5/minute"), recording(tmp_path, 0, 1), *given, *arguments)

    assert MISTAKE == done.status
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert not done.stdout


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "has no requests"),
        ("5,ada\n4,ada\n", ":3: t_s is 4, before the 5 of an earlier line; sort it by t_s"),
        ("soon,ada\n", ":2: t_s is 'soon', not a number of seconds"),
        ("-1,ada\n", ":2: t_s is -1, which is not between 0 and"),
        ("1763892000000,ada\n", "which is not between 0 and 4102444800 seconds"),
        ("1,\n", ":2: client is missing"),
        ("1,ada,bob\n", ":2: the line has more fields than there are columns"),
        ("1,\x00ada\n", "which cannot be a key"),
    ],
)
def test_a_recording_that_cannot_be_used_is_told_with_its_line(tmp_path: Path, rows: str, said: str) -> None:
    """Before anything is decided by it."""
    trace = tmp_path / "broken.csv"
    trace.write_text("t_s,client\n" + rows)

    done = plan(contracts(tmp_path, "5/minute"), trace, "--customer", "client")

    assert MISTAKE == done.status
    assert said in done.stderr
    assert not done.stdout


def test_a_recording_that_is_not_there_or_is_no_file_is_told(tmp_path: Path) -> None:
    """A folder, too; a pipe would be empty at the second reading."""
    file = contracts(tmp_path, "5/minute")

    assert "there is no such file" in plan(file, tmp_path / "none.csv", "--customer", "client").stderr
    assert "is no file" in plan(file, tmp_path, "--customer", "client").stderr


def test_a_mistake_in_the_contracts_is_told_with_its_line(tmp_path: Path) -> None:
    """And with the field."""
    done = plan(contracts(tmp_path, "many/minute"), recording(tmp_path, 0), "--customer", "client")

    assert MISTAKE == done.status
    assert "contracts.yaml, line 6: plans.free.limits.api.limit" in done.stderr


def test_a_recording_since_1970_is_not_told_when_it_began(tmp_path: Path) -> None:
    """It says so itself."""
    trace = recording(tmp_path, 1_763_892_000)

    done = plan(contracts(tmp_path, "5/minute"), trace, "--customer", "client", "--began", "2026-11-23T12:00:00Z")

    assert MISTAKE == done.status
    assert "the recording's times are since 1970 already" in done.stderr


@pytest.mark.slow
def test_an_interrupt_leaves_no_traceback(tmp_path: Path) -> None:
    """In the middle of a recording."""
    trace = recording(tmp_path, *range(1_000_000))
    command = [sys.executable, "-m", "reconverge.cli", "contracts", "plan", str(contracts(tmp_path, "5/minute"))]
    with subprocess.Popen(
        [*command, str(trace), "--customer", "client"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "rehearsing" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()

    assert INTERRUPTED == process.returncode
    assert "Traceback" not in stderr
    assert not stdout
