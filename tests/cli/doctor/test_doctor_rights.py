"""Whether a user may do what an agent does: what the doctor says about rights."""

from __future__ import annotations

import re

import pytest

from reconverge_sync.redis.diagnosis.checks import COMMANDS, acl_line
from reconverge_sync.redis.hub import EXCHANGE, RedisHub
from tests.support.commands.checked import ALL_RIGHTS, NEEDED, PASSWORD, allow, check
from tests.support.servers import RedisServer


def test_the_documented_rights_suffice(own_redis: RedisServer) -> None:
    """Of a user who has exactly these, no problem is reported; INFO and SCAN, for more checks, would be welcome."""
    checked = check(allow(own_redis, *ALL_RIGHTS))

    assert [] == checked.at("problem")
    assert ["memory", "keys"] == checked.at("warning")
    assert "exchange" in checked.at("ok")
    assert 0 == checked.status


@pytest.mark.parametrize("missing", NEEDED)
def test_every_missing_right_is_named(own_redis: RedisServer, missing: str) -> None:
    """Also that of a command which an exchange needs only once in a while."""
    checked = check(allow(own_redis, *(right for right in ALL_RIGHTS if right != f"+{missing}")))

    assert f"the user may not run {missing.upper()}" == checked.only("permission")["fact"]
    assert f"  ACL SETUSER USER +{missing}" in checked.only("permission")["remedy"].splitlines()
    assert [] == checked.findings("exchange")
    assert 1 == checked.status


@pytest.mark.parametrize("database", [0, 3])
def test_the_line_that_the_doctor_gives_makes_a_user_who_may_do_everything(
    own_redis: RedisServer, database: int
) -> None:
    """Copied as it is, but for the name and the password; with another database it includes SELECT."""
    remedy = check(allow(own_redis).replace("/0", f"/{database}")).only("permission")["remedy"]
    (line,) = [line for line in remedy.splitlines() if ">PASSWORD" in line]
    words = line.replace("NEWUSER", "bob").replace(">PASSWORD", f">{PASSWORD}").split()

    made = own_redis.command(*words)
    checked = check(f"redis://bob:{PASSWORD}@127.0.0.1:{own_redis.port}/{database}")

    assert "+OK" == made
    assert [] == checked.at("problem")
    assert "exchange" in checked.at("ok")


def test_the_rights_that_are_asked_for_are_those_of_the_script_and_of_the_hub() -> None:
    """A command that the script begins to use must be asked for, and a command that is not used must not."""
    script = set(re.findall(r"\bcall\('(\w+)'", EXCHANGE.text.decode()))
    documented = re.search(r"ACL SETUSER (.*?)\n\n", RedisHub.__doc__ or "", re.DOTALL)

    assert script | {"EVAL", "EVALSHA"} == set(COMMANDS)
    assert documented is not None
    assert set(re.findall(r"\+\w+", documented[1])) == set(re.findall(r"\+\w+", acl_line("shop", 0)))


def test_keys_that_may_not_be_used_are_a_problem(own_redis: RedisServer) -> None:
    """All commands are permitted, but of another namespace."""
    checked = check(allow(own_redis, *ALL_RIGHTS, keys="~other:*"))

    assert "the user may not use keys that begin with shop:" == checked.only("permission")["fact"]
    assert "  ACL SETUSER USER ~shop:*" in checked.only("permission")["remedy"].splitlines()
    assert ["permission"] == checked.at("problem")


def test_a_user_confined_to_exactly_the_agents_keys_is_no_problem(own_redis: RedisServer) -> None:
    """Only, there is no place to try an exchange in."""
    checked = check(allow(own_redis, *ALL_RIGHTS, keys="~shop:{0}:*"))

    assert [] == checked.at("problem")
    assert "no other keys in which to try an exchange" in checked.only("permission")["fact"]
    assert [] == checked.findings("exchange")


def test_a_database_that_may_not_be_selected_is_a_matter_of_rights(own_redis: RedisServer) -> None:
    """The login was fine; it is SELECT that is missing."""
    checked = check(allow(own_redis, *ALL_RIGHTS).replace("/0", "/3"))

    assert "the user may not run SELECT" == checked.only("permission")["fact"]
    assert ["reached"] == checked.at("ok")


def test_what_may_not_be_asked_is_said_to_be_unchecked(own_redis: RedisServer) -> None:
    """Without the right to INFO, neither a good nor a bad memory is made up, and the remedy says how to have it."""
    url = allow(own_redis, *ALL_RIGHTS)
    without = check(url)
    own_redis.command("ACL", "SETUSER", "ada", "+info")
    with_it = check(url)

    assert "warning" == without.only("memory")["level"]
    assert "INFO is not permitted" in without.only("memory")["fact"]
    assert "  ACL SETUSER USER +info" in without.only("memory")["remedy"].splitlines()
    assert "ok" == with_it.only("memory")["level"]
