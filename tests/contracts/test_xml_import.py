"""Goal: refill policies in XML become contracts; XML that reads other files, or stands for too much, is refused.

Method: the two listings of the format's source, a table of mistakes with their lines, and the known attacks by XML.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reconverge import Limit
from reconverge.contracts.model import Customer, Plan, PlanLimit
from reconverge.integrations.config.positions import InvalidConfiguration
from reconverge.integrations.contracts.importing import refill_policies
from reconverge.integrations.contracts.importing.imported import Imported
from reconverge.integrations.contracts.importing.refill_policies import DEPTH_MAX, imported_from_xml

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
HOURLY = "<RefillPolicy>\n<Capacity>20</Capacity>\n<SamplingPeriod>HOUR</SamplingPeriod>\n</RefillPolicy>\n"
DAILY = HOURLY.replace("20", "1000").replace("HOUR", "DAY")
CONTRACT = f"<Contract>\n<Identifier>User1235</Identifier>\n{HOURLY}{DAILY}</Contract>\n"


def imported(directory: Path, written: str | bytes) -> Imported:
    path = directory / "contract.xml"
    path.write_bytes(written.encode() if isinstance(written, str) else written)
    return imported_from_xml(path)


def test_a_refill_policy_by_itself_is_the_plan_of_unknown_customers(tmp_path: Path) -> None:
    """Listing 6.1: twenty requests an hour."""
    made = imported(tmp_path, HEAD + HOURLY)

    assert {"default": Plan({"hour": PlanLimit(Limit(20, 3600))})} == made.document.plans
    assert ("default", {}) == (made.document.unknown, made.document.customers)
    assert (
        (
            "contract.xml, line 2: RefillPolicy: belongs to no customer,"
            " so it becomes the plan default of unknown customers"
        ),
    ) == (made.remarks)


def test_a_contract_is_a_customer_with_all_its_policies(tmp_path: Path) -> None:
    """Listing 6.2: both must hold; customers without a contract are refused, which is told."""
    made = imported(tmp_path, HEAD + CONTRACT)
    policies = {"hour": PlanLimit(Limit(20, 3600)), "day": PlanLimit(Limit(1000, 86_400))}

    assert {"20-hour_1000-day": Plan(policies)} == made.document.plans
    assert {"User1235": Customer("20-hour_1000-day")} == made.document.customers
    assert "refused" == made.document.unknown
    assert any("their requests are refused" in each for each in made.remarks)


def test_customers_of_the_same_policies_share_a_plan(tmp_path: Path) -> None:
    """Of several contracts in a file."""
    others = CONTRACT.replace("User1235", "ada") + CONTRACT.replace("User1235", "bob").replace("20", "30")
    made = imported(tmp_path, f"<Contracts>{CONTRACT}{others}</Contracts>")

    assert {"User1235": "20-hour_1000-day", "ada": "20-hour_1000-day", "bob": "30-hour_1000-day"} == {
        identity: each.plan for identity, each in made.document.customers.items()
    }


@pytest.mark.parametrize(
    ("period", "seconds"),
    [("SECOND", 1), ("minute", 60), ("WEEK", 604_800), ("PT10M", 600), ("10 minutes", 600), ("P31D", 31 * 86_400)],
)
def test_a_period_is_a_unit_or_a_duration(period: str, seconds: float, tmp_path: Path) -> None:
    """Limit strings have the same periods."""
    (plan,) = imported(tmp_path, HOURLY.replace("HOUR", period)).document.plans.values()

    assert [Limit(20, seconds)] == [each.limit for each in plan.limits.values()]


def test_a_month_is_told_to_be_thirty_days(tmp_path: Path) -> None:
    """Months are of no one length."""
    made = imported(tmp_path, HOURLY.replace("HOUR", "MONTH"))

    assert [Limit(20, 30 * 86_400)] == [each.limit for each in made.document.plans["default"].limits.values()]
    assert "contract.xml, line 3: SamplingPeriod: MONTH is read as 30 days" in made.remarks


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_a_file_may_be_in_the_encoding_that_it_names(encoding: str, tmp_path: Path) -> None:
    """The parser reads the name."""
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + CONTRACT.replace("User1235", "Zoë &amp; Co")

    assert ["Zoë & Co"] == list(imported(tmp_path, text.encode(encoding)).document.customers)


MISTAKES = {
    "another root": ("<Plan/>", 1, "Plan", "is not <Contracts>"),
    "no policy": ("<Contract>\n<Identifier>a</Identifier></Contract>", 1, "Contract", "would admit everything"),
    "no identifier": (f"<Contract>\n{HOURLY}</Contract>", 1, "Contract", "exactly one <Identifier>, and has 0"),
    "an empty identifier": (f"<Contract>\n<Identifier> </Identifier>{HOURLY}</Contract>", 2, "Identifier", "is empty"),
    "two identifiers": (
        CONTRACT.replace("</I", "</Identifier><Identifier>b</I"),
        1,
        "Contract",
        "exactly one <Identifier>, and has 2",
    ),
    "no contract": ("<Contracts></Contracts>", 1, "Contracts", "has no Contract"),
    "a customer twice": (
        f"<Contracts>\n{CONTRACT}{CONTRACT}</Contracts>",
        14,
        "Identifier",
        "already has a contract above",
    ),
    "an unknown element": (CONTRACT.replace("Capacity>", "Capcity>"), 4, "Capcity", "did you mean 'Capacity'?"),
    "no capacity": (
        HOURLY.replace("<Capacity>20</Capacity>", ""),
        1,
        "RefillPolicy",
        "exactly one <Capacity>, and has 0",
    ),
    "a capacity of words": (HOURLY.replace("20", "many"), 2, "Capacity", "must be a whole number, not 'many'"),
    "a capacity beyond all": (HOURLY.replace("20", "9" * 5000), 2, "Capacity", "too large"),
    "a capacity below nothing": (HOURLY.replace("20", "-5"), 2, "Capacity", "must be a whole number"),
    "a period that is none": (HOURLY.replace("HOUR", "HOURS AND A HALF"), 3, "SamplingPeriod", "is not a period"),
    "a misspelt period": (HOURLY.replace("HOUR", "HOUER"), 3, "SamplingPeriod", "did you mean 'hour'?"),
    "two periods in one": (HOURLY.replace("HOUR", "hour; 5/day"), 3, "SamplingPeriod", "is not a period"),
    "a period twice": (CONTRACT.replace("DAY", "HOUR"), 7, "RefillPolicy", "is the second one for hour"),
    "text between": (CONTRACT.replace("<Id", "20 per hour<Id"), 1, "Contract", "has text of its own: '20 per hour'"),
    "an element where text is wanted": (
        HOURLY.replace("20", "<b>20</b>"),
        2,
        "Capacity",
        "must contain text alone, and has elements",
    ),
    "attributes": (HOURLY.replace("<Capacity>", "<Capacity unit='x'>"), 2, "", "attributes, which have no meaning"),
    "no end": (CONTRACT.replace("</Contract>", ""), 12, "", "is not XML: no element found"),
    "nothing": ("", 1, "", "is not XML: no element found"),
    "a wrong end": (CONTRACT.replace("</Contract>", "</Contrakt>"), 11, "", "is not XML: mismatched tag"),
    "an entity that is none": (CONTRACT.replace("User", "&user;"), 2, "", "is not XML: undefined entity"),
    "a character that is none": (CONTRACT.replace("User", "\x01"), 2, "", "is not XML"),
    "JSON": ('{"plans": {}}', 1, "", "is not XML"),
    "an encoding that is none": (HEAD.replace("UTF-8", "x-none") + CONTRACT, 1, "", "is not XML"),
    "depth": (
        "\n".join(["<a>"] * (DEPTH_MAX + 1)),
        DEPTH_MAX + 1,
        "",
        f"more than {DEPTH_MAX} levels of nested elements",
    ),
    "an odd name": (CONTRACT.replace("Capacity>", "é>"), 4, "é", "is unknown in <RefillPolicy>"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_by_its_line_and_element(case: str, tmp_path: Path) -> None:
    """In one sentence."""
    text, line, field, problem = MISTAKES[case]
    with pytest.raises(InvalidConfiguration) as caught:
        imported(tmp_path, text)

    assert (line, field) == (caught.value.line, caught.value.field)
    assert problem in caught.value.problem
    assert len(str(caught.value)) < 1500


LAUGHS = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(10))
ATTACKS = {
    "a file": '<!DOCTYPE a [<!ENTITY x SYSTEM "file://{secret}">]>',
    "an address": '<!DOCTYPE a SYSTEM "http://127.0.0.1:{port}/a.dtd">',
    "a parameter": '<!DOCTYPE a [<!ENTITY % x SYSTEM "file://{secret}"> %x;]>',
    "billions": f'<!DOCTYPE a [<!ENTITY a0 "ha">{LAUGHS}]>',
    "nothing": "<!DOCTYPE a>",
}


@pytest.mark.parametrize("case", ATTACKS)
def test_a_file_with_a_doctype_is_refused_before_it_is_read(case: str, tmp_path: Path) -> None:
    """Nothing of the other file is told, and entities stand for nothing."""
    secret = tmp_path / "secret"
    secret.write_text("sesame")
    doctype = ATTACKS[case].replace("{secret}", str(secret)).replace("{port}", "9")
    with pytest.raises(InvalidConfiguration, match="has a DOCTYPE") as caught:
        imported(tmp_path, HEAD + doctype + CONTRACT.replace("User1235", "&x;&a10;"))

    assert 2 == caught.value.line
    assert "sesame" not in str(caught.value)


def test_a_file_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many bytes; one more is told."""
    monkeypatch.setattr(refill_policies, "BYTES_MAX", len(CONTRACT))
    assert ["User1235"] == list(imported(tmp_path, CONTRACT).document.customers)

    with pytest.raises(InvalidConfiguration, match="has more than"):
        imported(tmp_path, CONTRACT + "\n")


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    """A directory, and what is not there."""
    for path in (tmp_path, tmp_path / "none.xml"):
        with pytest.raises(InvalidConfiguration, match="cannot be read"):
            imported_from_xml(path)
