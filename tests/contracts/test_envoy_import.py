"""Goal: descriptor files of Envoy's rate limit service become contracts, and what those cannot say is told.

Method: the examples of Envoy's own documentation (https://github.com/envoyproxy/ratelimit), written anew in short, each
with the contracts that it must become.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconverge import Agent, InvalidSetting, Limit
from reconverge.contracts.model import Customer, Plan, PlanLimit, Switching
from reconverge.contracts.terms import terms_of
from reconverge.integrations.config.positions import InvalidConfiguration, Source
from reconverge.integrations.contracts.importing.envoy import EVERYTHING, imported_from_envoy
from reconverge.integrations.contracts.importing.envoy_file import DESCRIPTOR_FIELDS, RATE_FIELDS, UNITS
from reconverge.integrations.contracts.importing.imported import Imported

SECOND_S, MINUTE_S, HOUR_S, DAY_S = 1, 60, 3600, 86_400
OFF = PlanLimit(Limit.parse(EVERYTHING), switch=Switching("off"))


def imported(directory: Path, text: str, customer: str | None = None) -> Imported:
    path = directory / "envoy.yaml"
    path.write_text(text)
    return imported_from_envoy(Source(path), customer)


def per(quota: int, window_s: int, *by: str, **more: Any) -> PlanLimit:
    """A limit as Envoy counts it."""
    return PlanLimit(Limit(quota, window_s, algorithm="fixed-window"), by or ("customer",), **more)


DATABASES = """
domain: mongo_cps
descriptors:
  - {key: database, value: users, rate_limit: {unit: second, requests_per_unit: 500}}
  - {key: database, value: default, rate_limit: {unit: second, requests_per_unit: 500}}
"""


def test_values_of_the_only_key_are_customers(tmp_path: Path) -> None:
    """Envoy's example 1: each has a plan of its own, and what the file does not name is not limited."""
    made = imported(tmp_path, DATABASES)

    assert "default" == made.document.unknown
    assert {
        "default": Plan({"unlimited": OFF}),
        "database_users": Plan({"database": per(500, SECOND_S)}),
        "database_default": Plan({"database": per(500, SECOND_S)}),
    } == made.document.plans
    assert {"users": Customer("database_users"), "default": Customer("database_default")} == made.document.customers


MESSAGES = """
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 5}
  - key: to_number
    rate_limit: {unit: day, requests_per_unit: 100}
"""


def test_a_value_above_the_customer_is_a_plan_that_adds_to_what_all_have(tmp_path: Path) -> None:
    """Envoy's example 2: 5 marketing messages a day to a number, and 100 of all."""
    made = imported(tmp_path, MESSAGES)
    hundred = per(100, DAY_S)
    marketing = per(5, DAY_S, "message_type", "customer")

    assert {
        "default": Plan({"to_number": hundred}),
        "message_type_marketing": Plan({"message_type_marketing.to_number": marketing, "to_number": hundred}),
    } == made.document.plans
    assert any("message_type=marketing becomes the plan message_type_marketing" in each for each in made.remarks)


ADDRESSES = """
domain: edge_proxy_per_ip
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10}
  - key: remote_address
    value: 50.0.0.5
    rate_limit: {unit: second, requests_per_unit: 0}
"""


def test_a_value_beside_its_key_is_a_customer_with_its_own_limit(tmp_path: Path) -> None:
    """Envoy's example 3: ten a second for each address, and none for one of them."""
    made = imported(tmp_path, ADDRESSES)

    assert {"default": Plan({"remote_address": per(10, SECOND_S)})} == made.document.plans
    assert {"50.0.0.5": Customer("default", {"remote_address": "0/second"})} == made.document.customers


def test_no_request_per_unit_admits_no_request(tmp_path: Path) -> None:
    """By an agent as it is."""
    (term,) = terms_of(imported(tmp_path, ADDRESSES).document, "50.0.0.5", 0).terms
    with Agent("memory://", namespace="banned") as agent:
        limiter = agent.limit("remote_address", term.limit)

        assert [False] * 3 == [limiter.allow("50.0.0.5") for _ in range(3)]


INTERNAL = """
domain: internal
descriptors:
  - key: ldap
    rate_limit: {unlimited: true}
  - key: azure
    rate_limit: {unit: minute, requests_per_unit: 100}
"""


def test_unlimited_is_a_limit_that_is_off(tmp_path: Path) -> None:
    """Envoy's example 5; the other key is a fact that counts beside the customer."""
    with pytest.raises(InvalidSetting, match="any of ldap, azure could be the customer; name one of them"):
        imported(tmp_path, INTERNAL)
    (plan,) = imported(tmp_path, INTERNAL, "azure").document.plans.values()

    assert {"ldap": PlanLimit(OFF.limit, ("ldap",), OFF.switch), "azure": per(100, MINUTE_S)} == plan.limits


SHADOWED = """
domain: example6
descriptors:
  - key: service
    descriptors:
      - {key: user, value: user-a, rate_limit: {unit: second, requests_per_unit: 10}, shadow_mode: true}
      - {key: user, value: user-b, rate_limit: {unit: second, requests_per_unit: 20}}
"""


def test_shadow_mode_is_a_limit_in_shadow(tmp_path: Path) -> None:
    """Envoy's example 6, for the customer that it is said of alone."""
    plans = imported(tmp_path, SHADOWED, "user").document.plans

    assert (
        per(10, SECOND_S, "service", "customer", switch=Switching("shadow"))
        == plans["user_user-a"].limits["service.user"]
    )
    assert per(20, SECOND_S, "service", "customer") == plans["user_user-b"].limits["service.user"]


def test_a_customer_in_shadow_keeps_the_plan_of_the_others(tmp_path: Path) -> None:
    """If the plan has the limit that is otherwise for it; one that Envoy lets through is off."""
    text = """
domain: d
descriptors:
  - {key: user, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: user, value: eve, rate_limit: {unit: second, requests_per_unit: 20}, shadow_mode: true}
  - {key: user, value: root}
"""
    customers = imported(tmp_path, text).document.customers

    assert Customer("default", {"user": "20/second"}, switches={"user": Switching("shadow")}) == customers["eve"]
    assert Customer("default", switches={"user": Switching("off")}) == customers["root"]


def test_what_holds_for_others_in_shadow_does_not_switch_a_customer(tmp_path: Path) -> None:
    """Of several switches the one that refuses least counts, so it is on a plan of its own."""
    text = """
domain: d
descriptors:
  - {key: user, rate_limit: {unit: second, requests_per_unit: 10}, shadow_mode: true}
  - {key: user, value: eve, rate_limit: {unit: second, requests_per_unit: 20}}
"""
    document = imported(tmp_path, text).document

    assert Customer("user_eve") == document.customers["eve"]
    assert {"user": per(20, SECOND_S)} == document.plans["user_eve"].limits


REPLACED = """
domain: example7
descriptors:
  - key: key_1
    value: value_1
    descriptors:
      - key: user
        value: bkthomps
        rate_limit: {name: specific_limit, requests_per_unit: 5, unit: second}
  - key: key_2
    value: value_2
    descriptors:
      - key: user
        value: bkthomps
        rate_limit:
          replaces: [{name: specific_limit}]
          requests_per_unit: 10
          unit: second
"""


def test_a_customer_of_two_plans_is_told(tmp_path: Path) -> None:
    """Envoy's example 7: a customer is on one plan; of another key the values are plans for each."""
    with pytest.raises(InvalidConfiguration, match="can be on one plan only") as caught:
        imported(tmp_path, REPLACED, "user")
    made = imported(tmp_path, REPLACED, "key_1")

    assert (13, "descriptors.1.descriptors.0") == (caught.value.line, caught.value.field)
    assert ["default", "key_2_value_2.user_bkthomps", "user_bkthomps.key_1_value_1"] == list(made.document.plans)
    assert any("'specific_limit' is not replaced" in each for each in made.remarks)


def test_a_replaced_limit_is_left_out_of_the_plan_that_replaces_it(tmp_path: Path) -> None:
    """It holds for all others."""
    text = """
domain: d
descriptors:
  - key: user
    rate_limit: {name: usual, unit: second, requests_per_unit: 10}
    descriptors:
      - {key: route, rate_limit: {unit: second, requests_per_unit: 4}}
  - key: tier
    value: gold
    descriptors:
      - {key: user, rate_limit: {unit: second, requests_per_unit: 90, replaces: [{name: usual}]}}
"""
    made = imported(tmp_path, text, "user")

    assert {"user", "user.route"} == set(made.document.plans["default"].limits)
    assert {"tier_gold.user", "user", "user.route"} == set(made.document.plans["tier_gold"].limits)
    assert any("'usual' is not replaced" in each for each in made.remarks)


WHOLE_EXAMPLE = """
domain: rl
descriptors:
  - key: category
    value: account
    rate_limit: {replaces: [{name: bkthomps}, {name: fake_name}], unit: minute, requests_per_unit: 4}
  - key: source_cluster
    value: proxy
    descriptors:
      - key: destination_cluster
        value: bkthomps
        rate_limit: {replaces: [{name: bkthomps}], unit: minute, requests_per_unit: 2}
      - {key: destination_cluster, value: mock, rate_limit: {unit: minute, requests_per_unit: 1}}
  - key: foo
    rate_limit: {unit: minute, requests_per_unit: 2}
    descriptors:
      - {key: bar, rate_limit: {unit: minute, requests_per_unit: 3}}
      - {key: bar, value: bkthomps, rate_limit: {name: bkthomps, unit: minute, requests_per_unit: 1}}
      - {key: bar, value: banned, rate_limit: {unit: minute, requests_per_unit: 0}}
      - {key: baz, rate_limit: {unit: second, requests_per_unit: 1}}
      - {key: baz, value: shady, rate_limit: {unit: minute, requests_per_unit: 3}, shadow_mode: true}
      - {key: bay, rate_limit: {unlimited: true}}
  - {key: unspec, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: qux, rate_limit: {unlimited: true}}
  - key: service
    value: service_1
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
    metadata: {service_with_quota: {name: service_1}}
"""


def test_the_example_that_envoy_comes_with_is_imported(tmp_path: Path) -> None:
    """Every descriptor of it is in a plan, and all that is otherwise is told with its line."""
    made = imported(tmp_path, WHOLE_EXAMPLE, "foo")
    plans = made.document.plans
    usual = {"foo", "foo.bar", "foo.baz", "foo.bay", "unspec", "qux"}

    assert usual == set(plans["default"].limits)
    assert usual | {"category_account"} == set(plans["category_account"].limits)
    assert usual - {"foo.bar"} | {"foo.bar_banned"} == set(plans["bar_banned"].limits)
    assert per(1, MINUTE_S, "customer", "bar") == plans["bar_bkthomps"].limits["foo.bar_bkthomps"]
    assert Switching("shadow") == plans["baz_shady"].limits["foo.baz_shady"].switch
    assert (
        per(1, MINUTE_S, "source_cluster", "destination_cluster")
        == (
            plans["source_cluster_proxy.destination_cluster_mock"].limits[
                "source_cluster_proxy.destination_cluster_mock"
            ]
        )
    )
    for field in ("domain", "detailed_metric", "quota_mode", "metadata", "replaces"):
        assert any(f"{field}: " in each and each.startswith("envoy.yaml, line ") for each in made.remarks), field


def test_a_special_limit_takes_the_place_of_the_usual_one_level_by_level(tmp_path: Path) -> None:
    """Envoy's own tests have these cases: a limit at a level, another one for a value, and a value without any."""
    text = """
domain: test-domain
descriptors:
  - key: key1
    value: value1
    descriptors:
      - {key: subkey1, rate_limit: {unit: second, requests_per_unit: 5}}
      - {key: subkey1, value: subvalue1, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: key2, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: key2, value: value2, rate_limit: {unit: minute, requests_per_unit: 30}}
  - {key: key2, value: value3}
"""
    document = imported(tmp_path, text, "key2").document

    assert {
        "value2": Customer("default", {"key2": "30/minute"}),
        "value3": Customer("default", switches={"key2": Switching("off")}),
    } == (document.customers)
    assert ["default", "key1_value1", "key1_value1.subkey1_subvalue1"] == list(document.plans)
    assert {"key1_value1.subkey1_subvalue1", "key2"} == set(document.plans["key1_value1.subkey1_subvalue1"].limits)


def test_a_pattern_is_a_plan(tmp_path: Path) -> None:
    """Envoy's examples 9 and 11: it is told for which values; shared by all of them, it does not count by the key."""
    text = """
domain: example9
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: user, value: bot-*, rate_limit: {unit: minute, requests_per_unit: 20}}
  - key: path
    value: /api/*/action
    share_threshold: true
    descriptors:
      - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
"""
    made = imported(tmp_path, text)
    bots, paths = (name for name in made.document.plans if name != "default")

    assert bots.startswith("user_bot--")
    assert [per(20, MINUTE_S)] == list(made.document.plans[bots].limits.values())
    assert [per(5, MINUTE_S), per(10, HOUR_S)] == list(made.document.plans[paths].limits.values())
    assert any("user=bot-* becomes the plan" in each for each in made.remarks)


def test_a_customer_that_fits_a_pattern_has_what_it_fits(tmp_path: Path) -> None:
    """Envoy looks for the value first, then for patterns in their order."""
    text = """
domain: d
descriptors:
  - {key: user, value: bot-*, rate_limit: {unit: minute, requests_per_unit: 20}}
  - key: user
    value: bot-7
    descriptors:
      - {key: route, rate_limit: {unit: minute, requests_per_unit: 3}}
"""
    made = imported(tmp_path, text, "user")

    assert {"user.route": per(3, MINUTE_S, "customer", "route")} == made.document.plans["user_bot-7"].limits


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_is_as_long_as_in_envoy(unit: str, tmp_path: Path) -> None:
    """A month has 30 days there, too, and a year 365; units are written in any case."""
    seconds = {"second": 1, "minute": 60, "hour": 3600, "day": 1, "week": 7, "month": 30, "year": 365}[unit]
    days = DAY_S if unit in ("day", "week", "month", "year") else 1
    text = f"domain: d\ndescriptors: [{{key: user, rate_limit: {{unit: {unit.upper()}, requests_per_unit: 5}}}}]"
    (plan,) = imported(tmp_path, text).document.plans.values()

    assert {"user": per(5, seconds * days)} == plan.limits


def test_names_that_are_too_long_or_odd_are_told_apart(tmp_path: Path) -> None:
    """Plans have names of 64 characters; a key that is no fact's name is told as the fact that it becomes."""
    values = ["x" * 100, "x" * 101, "a b", "a?b"]
    listed = ", ".join(
        f"{{key: ':path', value: '{value}', rate_limit: {{unit: day, requests_per_unit: 5}}}}" for value in values
    )
    text = f"domain: d\ndescriptors: [{{key: user, rate_limit: {{unit: day, requests_per_unit: 5}}}}, {listed}]"
    made = imported(tmp_path, text)

    assert 1 + len(values) == len(made.document.plans)
    assert any("the key ':path' becomes the fact _path" in each for each in made.remarks)


RATE = "rate_limit: {unit: day, requests_per_unit: 5}"
MISTAKES = {
    "no domain": (f"descriptors: [{{key: a, {RATE}}}]", "domain", "is missing"),
    "no descriptors": ("domain: d", "descriptors", "nothing to import"),
    "a list of words": ("domain: d\ndescriptors: [a, b]", "descriptors.0", "must be a mapping"),
    "no list": ("domain: d\ndescriptors: {a: b}", "descriptors", "must be a list"),
    "no key": (f"domain: d\ndescriptors:\n- {{value: a, {RATE}}}", "descriptors.0.key", "is missing"),
    "a key twice": (
        f"domain: d\ndescriptors:\n- {{key: a, {RATE}}}\n- {{key: a, {RATE}}}",
        "descriptors.1",
        "is written twice",
    ),
    "a misspelt field": (
        "domain: d\ndescriptors:\n- {key: a, ratelimit: 5}",
        "descriptors.0.ratelimit",
        "'rate_limit'",
    ),
    "a misspelt rate": (
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requestsperunit: 5}}",
        "descriptors.0.rate_limit.requestsperunit",
        "did you mean 'requests_per_unit'?",
    ),
    "a field at the top": (f"domains: d\ndescriptors:\n- {{key: a, {RATE}}}", "domains", "did you mean 'domain'?"),
    "no unit": (
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {requests_per_unit: 5}}",
        "descriptors.0.rate_limit.unit",
        "one of",
    ),
    "a unit that is none": (
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: seconds, requests_per_unit: 5}}",
        "descriptors.0.rate_limit.unit",
        "did you mean 'second'?",
    ),
    "unlimited by the day": (
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unlimited: true, unit: day}}",
        "descriptors.0.rate_limit.unit",
        "cannot be combined with unlimited",
    ),
    "a quota of text": (
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: many}}",
        "descriptors.0.rate_limit.requests_per_unit",
        "whole number",
    ),
    "a quota below nothing": (
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: -1}}",
        "descriptors.0.rate_limit.requests_per_unit",
        "whole number",
    ),
    "a value that YAML takes for a truth": (
        f"domain: d\ndescriptors:\n- {{key: a, value: yes, {RATE}}}",
        "descriptors.0.value",
        "write it in quotes",
    ),
    "a shadow of text": (
        f"domain: d\ndescriptors:\n- {{key: a, {RATE}, shadow_mode: 5}}",
        "descriptors.0.shadow_mode",
        "true",
    ),
    "a replacement of nothing": (
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: ''}]}}",
        "descriptors.0.rate_limit.replaces.0",
        "must name another",
    ),
    "a replacement of itself": (
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, name: x, replaces: [{name: x}]}}",
        "descriptors.0.rate_limit.replaces.0",
        "must name another",
    ),
    "shared by one value": (
        f"domain: d\ndescriptors:\n- {{key: a, value: b, share_threshold: true, {RATE}}}",
        "descriptors.0.share_threshold",
        "needs a descriptor whose value contains *",
    ),
    "shared by all": (
        f"domain: d\ndescriptors:\n- {{key: a, value: b*, share_threshold: true, {RATE}}}",
        "descriptors.0.share_threshold",
        "leaves no key to count by",
    ),
    "a key below itself": (
        f"domain: d\ndescriptors:\n- {{key: a, value: b, descriptors: [{{key: a, {RATE}}}]}}",
        "descriptors.0.descriptors.0",
        "of the same key",
    ),
    "two keys of one fact": (
        f"domain: d\ndescriptors:\n- {{key: a, {RATE}}}\n- {{key: b-c, {RATE}}}\n- {{key: b_c, {RATE}}}",
        "descriptors.2",
        "would become the fact b_c",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_file_that_envoy_refuses_or_contracts_cannot_say_is_told(case: str, tmp_path: Path) -> None:
    """By its line and field."""
    text, field, problem = MISTAKES[case]
    with pytest.raises(InvalidConfiguration) as caught:
        imported(tmp_path, text, "a" if "key: a" in text else None)

    assert field == caught.value.field
    assert problem in caught.value.problem
    assert caught.value.line is not None


def test_a_customer_that_is_no_key_is_told(tmp_path: Path) -> None:
    """With the one that may be meant."""
    with pytest.raises(InvalidSetting, match="did you mean 'database'"):
        imported(tmp_path, DATABASES, "databases")


def test_every_field_of_envoy_is_known() -> None:
    """The list is Envoy's reader's, of descriptors and rate limits, as of November 2026."""
    known = {"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "name"}
    known |= {
        "replaces",
        "shadow_mode",
        "quota_mode",
        "detailed_metric",
        "value_to_metric",
        "share_threshold",
        "metadata",
    }

    assert known == {"domain", *DESCRIPTOR_FIELDS, *RATE_FIELDS}
