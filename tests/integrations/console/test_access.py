"""Goal: a console answers operators, and no page of another site, whatever that has the browser send.

Method: the requests that a browser would send, by hand, to a console with tokens and to one behind authentication.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconverge import Agent, InvalidSetting
from reconverge.integrations.console import console
from reconverge.integrations.console.access import SESSION_S
from reconverge.testing import ManualClock
from tests.integrations.console.conftest import SECRET
from tests.support.console import HOME, READER, TOKENS, WRITER, Browser

PATHS = ["/session", "/state", "/stream", "/key?limit=login&key=ada", "/switches", "/usage", "/nothing"]


def word(client: Browser) -> dict[str, str]:
    """Returns the headers that the script of the page sends with a change."""
    return {"x-reconverge-console": client.get("/session").json()["word"], "origin": HOME}


def test_without_a_token_it_does_not_start(agent: Agent) -> None:
    """Nor with tokens that are not asked for; the error says what to do."""
    with pytest.raises(InvalidSetting, match=r"tokens=\{.*behind_authentication=True"):
        console(agent)
    with pytest.raises(InvalidSetting, match="tokens"):
        console(agent, tokens=[])
    with pytest.raises(InvalidSetting, match="leave out one of them"):
        console(agent, tokens=TOKENS, behind_authentication=True)


def test_settings_that_are_wrong_are_told(agent: Agent) -> None:
    """And none of them shows a secret."""
    wrong: Any = "an agent"
    with pytest.raises(InvalidSetting, match="is not an Agent"):
        console(wrong, tokens=TOKENS)
    with pytest.raises(InvalidSetting, match="16"):
        console(agent, tokens=TOKENS, settings_secret="short")  # noqa: S106  # a test's own
    with pytest.raises(InvalidSetting) as error:
        console(agent, tokens={"short": "read"})
    assert "short'" not in str(error.value)


@pytest.mark.parametrize("path", PATHS)
def test_without_a_session_nothing_is_shown(client: Browser, path: str) -> None:
    """Not even whether there is something at a path."""
    assert 401 == client.get(path).status_code


def test_the_cookie_is_found_among_others(client: Browser) -> None:
    """In one field or in several, among others of any kind; of several with its name one that holds is enough."""
    client.sign_in(READER)
    own = f"reconverge_console={client.cookies['reconverge_console']}"
    client.cookies.clear()
    told = [
        client.get("/state", headers=fields).status_code
        for fields in (
            {"cookie": f'a="\\"; b=c; {own}; d'},
            [("cookie", "a=b"), ("cookie", own)],
            {"cookie": f"reconverge_console=old; {own}"},
            {"cookie": f"{own}; reconverge_console=new"},
            {"cookie": f"x{own}"},
        )
    ]

    assert [200, 200, 200, 200, 401] == told


def test_the_page_asks_for_a_token_and_goes_on_with_a_cookie(client: Browser) -> None:
    """Which no script can read, and which no other site has the browser send."""
    assert "<form" in client.get("/").text

    response = client.post("/sign-in", data={"token": READER}, headers={"origin": HOME})

    cookie = response.headers["set-cookie"]
    assert READER not in cookie
    assert {"HttpOnly", "SameSite=Strict", f"Max-Age={SESSION_S}"} < set(cookie.split("; "))
    assert "Path" not in cookie
    assert "Nodes" in client.get("/").text
    assert 200 == client.get("/state").status_code


def test_a_cookie_is_for_encrypted_connections_alone_where_there_is_one(agent: Agent) -> None:
    """So that none sends it in plain text later."""
    with Browser(console(agent, tokens=TOKENS), "https://shop.example") as client:
        headers = {"origin": "https://shop.example"}
        cookie = client.post("/sign-in", data={"token": READER}, headers=headers).headers["set-cookie"]

    assert cookie.endswith("; Secure")


@pytest.mark.parametrize("token", ["", "wrong", READER[:-1], READER + "x", "ä" * 20, "x" * 3000, WRITER.upper()])
def test_a_wrong_token_begins_no_session(client: Browser, token: str) -> None:
    """The page says so, and does not show what was sent."""
    response = client.post("/sign-in", data={"token": token}, headers={"origin": HOME})

    assert 401 == response.status_code
    assert "not known" in response.text
    assert "set-cookie" not in response.headers
    assert not token or token not in response.text
    assert 401 == client.get("/state").status_code


def test_a_form_that_is_too_long_is_not_read(client: Browser) -> None:
    """However much a client sends."""
    response = client.post("/sign-in", data={"token": "x" * 10_000}, headers={"origin": HOME})

    assert 413 == response.status_code


@pytest.mark.parametrize("change", ["later", "shorter", "other"])
def test_a_forged_cookie_is_worth_nothing(client: Browser, change: str) -> None:
    """Each part of it is signed."""
    client.sign_in(READER)
    until, _, signature = client.cookies["reconverge_console"].partition(".")
    forged = {
        "later": f"{int(until) + 1}.{signature}",
        "shorter": f"{until}.{signature[:-1]}",
        "other": f"{until}.{signature[:-1]}{'0' if signature[-1] != '0' else '1'}",
    }[change]
    client.cookies.clear()

    assert 401 == client.get("/state", headers={"cookie": f"reconverge_console={forged}"}).status_code
    assert 200 == client.get("/state", headers={"cookie": f"reconverge_console={until}.{signature}"}).status_code


def test_a_session_ends(agent: Agent) -> None:
    """After a working day, to the second."""
    clock = ManualClock(1_750_000_000.0)
    alone = Agent("memory://", clock=clock)
    with Browser(console(alone, tokens=TOKENS)) as client:
        client.sign_in(READER)
        cookie = {"cookie": f"reconverge_console={client.cookies['reconverge_console']}"}
        client.cookies.clear()
        clock.advance(SESSION_S - 1)
        assert 200 == client.get("/state", headers=cookie).status_code

        clock.advance(1)

        assert 401 == client.get("/state", headers=cookie).status_code


def test_a_session_holds_on_every_worker_that_knows_the_token(agent: Agent, client: Browser) -> None:
    """And on none that does not: it ends with the token."""
    client.sign_in(READER)
    cookie = {"cookie": f"reconverge_console={client.cookies['reconverge_console']}"}

    with Browser(console(agent, tokens=TOKENS)) as other, Browser(console(agent, tokens={WRITER: "write"})) as stranger:
        assert 200 == other.get("/state", headers=cookie).status_code
        assert 401 == stranger.get("/state", headers=cookie).status_code


def test_signing_out_takes_the_cookie_back(client: Browser) -> None:
    """Asked for by the page, and by no other site."""
    client.sign_in(READER)
    assert 403 == client.post("/sign-out", headers={"origin": "http://evil.example"}).status_code

    response = client.post("/sign-out", headers={"origin": HOME})

    assert "Max-Age=0" in response.headers["set-cookie"]
    assert 401 == client.get("/state").status_code


def test_programs_send_the_token_itself(client: Browser) -> None:
    """They need no word of a page, and none for the API of contracts."""
    reads, writes = ({"authorization": f"Bearer {token}"} for token in (READER, WRITER))

    assert 200 == client.get("/state", headers=reads).status_code
    assert 401 == client.get("/state", headers={"authorization": "Bearer nonsense"}).status_code
    assert 403 == client.post("/switch", json={"to": "shadow"}, headers=reads).status_code
    assert 200 == client.post("/switch", json={"to": "shadow"}, headers=writes).status_code


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": HOME, "sec-fetch-site": "cross-site"},
        {"origin": HOME, "sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
@pytest.mark.parametrize("signed_in", [True, False], ids=["token", "behind"])
def test_another_site_changes_nothing(agent: Agent, headers: dict[str, str], *, signed_in: bool) -> None:
    """Even one that knows the word, whether the console has sessions or stands behind authentication."""
    guards: dict[str, Any] = {"tokens": TOKENS} if signed_in else {"behind_authentication": True}
    app = console(agent, settings_secret=SECRET, **guards)
    with Browser(app) as client:
        if signed_in:
            client.sign_in(WRITER)
        known = {name: value for name, value in word(client).items() if name != "origin"}

        response = client.post("/switch", json={"to": "off"}, headers=known | headers)

        assert 403 == response.status_code
        assert None is client.get("/switches").json()["switch"]


@pytest.mark.parametrize("sent", [None, "", "0" * 64, "ä"])
def test_a_change_without_the_word_of_the_session_is_refused(client: Browser, sent: str | None) -> None:
    """A cookie alone is not enough."""
    client.sign_in(WRITER)
    headers: dict[str, Any] = {"origin": HOME}
    if sent is not None:
        headers["x-reconverge-console"] = sent.encode()

    assert 403 == client.post("/switch", json={"to": "off"}, headers=headers).status_code


def test_a_form_of_another_site_is_no_json(client: Browser) -> None:
    """So a browser asks first whether it may send one, and the console never says that it may."""
    client.sign_in(WRITER)

    assert 415 == client.post("/switch", data={"to": "off"}, headers=word(client)).status_code
    assert "access-control-allow-origin" not in client.send("OPTIONS", "/switch").headers


def test_reading_is_not_changing(client: Browser) -> None:
    """A token that may read looks at switches, and turns none."""
    client.sign_in(READER)

    assert not client.get("/session").json()["changes"]
    assert 200 == client.get("/switches").status_code
    assert 403 == client.post("/switch", json={"to": "off"}, headers=word(client)).status_code


@pytest.mark.parametrize("guards", [{"tokens": TOKENS}, {"behind_authentication": True}], ids=["token", "behind"])
def test_a_console_for_reading_changes_nothing(agent: Agent, guards: dict[str, Any]) -> None:
    """No token changes that."""
    app = console(agent, settings_secret=SECRET, read_only=True, **guards)
    with Browser(app) as client:
        if "tokens" in guards:
            client.sign_in(WRITER)

        assert not client.get("/session").json()["changes"]
        assert 403 == client.post("/switch", json={"to": "off"}, headers=word(client)).status_code


def test_behind_authentication_no_token_is_asked_for(agent: Agent) -> None:
    """The application has let the operator through; there is nothing to sign in to."""
    with Browser(console(agent, behind_authentication=True)) as client:
        assert "Nodes" in client.get("/").text
        assert 200 == client.get("/state").status_code
        assert 404 == client.post("/sign-in", data={"token": READER}, headers={"origin": HOME}).status_code


def test_two_tokens_of_one_role_are_two_visitors(agent: Agent) -> None:
    """Each session is of the token that it began with."""
    tokens = ["ada: the-token-of-ada-12345, write", "bob: the-token-of-bob-12345, write"]
    with Browser(console(agent, tokens=tokens)) as client:
        client.sign_in("the-token-of-bob-12345")
        assert "bob" == client.get("/session").json()["name"]


def test_a_token_has_its_own_rights_and_none_of_another_name(agent: Agent) -> None:
    """Two tokens of one name are refused at the start, and the error names the one that is there twice."""
    tokens = [f"ops: {WRITER}, write", f"ops: {READER}, read"]
    with pytest.raises(InvalidSetting, match=r"'ops'.*give each a name of its own"):
        console(agent, tokens=tokens)


def test_tokens_without_names_are_told_apart_and_keep_their_roles(agent: Agent) -> None:
    """A mapping has no names, so each token is called by its role, and further ones by their number, too."""
    tokens = {"b" * 20: "read", "w" * 20: "write", "c" * 20: "read"}
    with Browser(console(agent, tokens=tokens, settings_secret=SECRET)) as client:
        sessions = [
            client.get("/session", headers={"authorization": f"Bearer {secret}"}).json() for secret in sorted(tokens)
        ]

    assert [("read", False), ("read-2", False), ("write", True)] == [(at["name"], at["changes"]) for at in sessions]


@pytest.mark.parametrize(
    "odd",
    [
        'prefs={"a":1}',
        "a=b c",
        "x=\u00e9",
        "foo",
        "a[0]=1",
        "a b=c",
        "=x",
        'sess="abc',
        "$Version=1",
        "path=/",
        "expires=1",
        "x=" + "y" * 9000,
        "reconverge_console=1.2",
        "",
    ],
)
def test_no_cookie_of_another_application_signs_an_operator_out(client: Browser, odd: str) -> None:
    """A host is shared, and what others set is anything; each cookie is looked at on its own, before ours or behind."""
    client.sign_in(READER)
    ours = f"reconverge_console={client.cookies['reconverge_console']}"
    client.cookies.clear()

    for said in (f"{odd}; {ours}", f"{ours}; {odd}"):
        assert 200 == client.get("/session", headers={"cookie": said.encode("latin-1")}).status_code


def test_a_form_with_more_fields_than_it_has_room_for_is_refused(client: Browser) -> None:
    """It says how many there may be; one less is read."""
    headers = {"origin": HOME, "content-type": "application/x-www-form-urlencoded"}
    most, further = (client.post("/sign-in", content="a=1&" * count + "b=1", headers=headers) for count in (7, 8))

    assert 401 == most.status_code
    assert 400 == further.status_code
    assert "more than 8 fields" in further.json()["detail"]
