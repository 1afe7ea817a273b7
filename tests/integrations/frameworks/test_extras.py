"""Goal: whoever lacks a framework is told what to install, and whoever needs none loads none."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
for package in {absent!r}:
    sys.modules[package] = None
try:
    import reconverge.integrations.{module}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "absent", "extra"),
    [
        ("fastapi", ["starlette", "starlette.exceptions"], "fastapi"),
        ("flask", ["flask"], "flask"),
        ("django", ["django"], "django"),
        ("aiohttp", ["aiohttp"], "aiohttp"),
        ("grpc", ["grpc"], "grpc"),
        ("contracts.api", ["starlette", "starlette.responses"], "api"),
        ("limits_storage", ["limits"], "limits"),
    ],
)
def test_a_missing_framework_is_named_with_its_extra(module: str, absent: list[str], extra: str) -> None:
    """Under the name by which pip installs it; the API of contracts needs no framework above Starlette."""
    program = WITHOUT.format(module=module, absent=absent)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert f"pip install 'reconverge[{extra}]'" in said.stdout


@pytest.mark.parametrize("module", ["httpx", "requests"])
def test_a_missing_parser_is_named_with_an_extra_that_has_it(module: str) -> None:
    """For whichever library it is that calls others."""
    program = WITHOUT.format(module=module, absent=["http_sfv", "http_sfv.dictionary"])
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert module in said.stdout.partition("reconverge[")[2].partition("]")[0].split(",")


def test_what_needs_no_framework_loads_none() -> None:
    """Nothing but Python, for middleware and decorators, too."""
    program = (
        "import sys; before = set(sys.modules); import reconverge.integrations.asgi, reconverge.integrations.wsgi, "
    )
    program += "reconverge.integrations.decorators; print(*(set(sys.modules) - before))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in said.stdout.split()}

    assert {"reconverge"} == {
        name for name in loaded - sys.stdlib_module_names if not name.startswith(("_sysconfig", "__mp"))
    }
