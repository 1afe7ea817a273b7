"""Goal: the JSON Schema says of a document what `checked` says, as far as one field can tell.

Method: another implementation of JSON Schema reads it, and judges the documents that the tests of files are made of.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.contracts.document import checked
from reconverge.contracts.format import schema
from reconverge.contracts.model import InvalidContracts
from reconverge.contracts.writing import table_of
from tests.support.broken_contracts import FITTING, VALUES, WHOLE, misshapen, put
from tests.support.drawn_contracts import Table, documents

PUBLISHED = Path(__file__).parents[2] / "docs" / "reference" / "contracts.schema.json"
JUDGE = jsonschema.Draft202012Validator(schema())
MISSHAPEN = list(misshapen())
BEYOND = {
    "a zone without a calendar": put("plans.free.limits.parts.timezone", "Europe/Berlin"),
    "a plan that there is not": put("customers.bob", "pro"),
    "two quotas": put("plans.free.limits.api", "5/s; 9/h"),
    "a unit that there is not": put("plans.free.limits.api", "5/fortnight"),
    "a cost that never fits": put("plans.free.limits.users.costs.GET", 1000),
}
"""Documents that are wrong only beside other fields, or inside a limit string."""
FINE = (
    "'1000000000001/s'",
    "'1/0s'",
    "'1/3661 days'",
    "'101%'",
    "lasts is null",
    "then is null",
    "customers.ada.until is null",
)
"""Numbers in text that are out of range, and fields without the other one that goes with them."""
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=5,
)


def fits(said: Any) -> bool:
    """Whether the schema accepts it."""
    return JUDGE.is_valid(said)


def makes_sense(said: Any) -> bool:
    """Whether `checked` accepts it."""
    try:
        checked(said)
    except InvalidContracts:
        return False
    return True


def test_the_schema_is_one() -> None:
    """Of the dialect that it says."""
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_published_schema_is_this_one() -> None:
    """The file is the output of `reconverge contracts schema > docs/reference/contracts.schema.json`."""
    assert json.loads(PUBLISHED.read_text()) == schema()


@pytest.mark.slow
@given(table=documents())
def test_the_schema_accepts_all_that_makes_sense(table: Table) -> None:
    """It accepts a document as it was written, and as it is written back."""
    assert fits(table)
    assert fits(table_of(checked(table)))


def test_the_schema_accepts_the_document_with_all_fields() -> None:
    """So what it refuses below is the one field that is wrong."""
    assert fits(WHOLE)
    assert makes_sense(WHOLE)


@pytest.mark.parametrize(
    ("case", "table"), [(case, table) for case, _, table in MISSHAPEN], ids=lambda each: str(each)[:70]
)
def test_both_refuse_what_is_wrong_by_itself(case: str, table: Table) -> None:
    """Types, ranges, what is missing and what is unknown."""
    assert not makes_sense(table)
    assert fits(table) is case.endswith(FINE)


@pytest.mark.parametrize(("path", "kind"), [(path, kind) for path, kinds in FITTING.items() for kind in kinds.split()])
def test_the_schema_accepts_each_type_that_a_field_can_have(path: str, kind: str) -> None:
    """`checked` does, too, unless the value does not go with another field."""
    assert fits(put(path, VALUES[kind]))


@pytest.mark.parametrize("case", BEYOND)
def test_only_checked_knows_what_is_about_several_fields(case: str) -> None:
    """The schema accepts it: `reconverge contracts validate` says what is wrong."""
    assert fits(BEYOND[case])
    assert not makes_sense(BEYOND[case])


@given(path=st.sampled_from(sorted(FITTING)), value=ANYTHING)
def test_whatever_the_schema_refuses_is_refused(path: str, value: Any) -> None:
    """Any value in any field."""
    table = put(path, value)

    assert fits(table) or not makes_sense(table)


def test_what_limits_a_web_application_reads_no_format() -> None:
    """Pydantic is imported when the first contracts are read."""
    program = (
        "import sys, reconverge.integrations.flask, reconverge.contracts.following; print('pydantic' in sys.modules)"
    )

    assert (
        "False\n" == subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    )
