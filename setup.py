"""What pyproject.toml cannot say: the compiled kernel, built where there is a compiler, and links with an address."""

import re
import tomllib
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("agent/reconverge/kernel/native")
ADDRESS: str = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["reconverge"]["repository"]


def urls(address: str) -> dict[str, str]:
    """The links beside a release; none, as long as the owner has not said where the repository is."""
    places = {
        "Repository": "",
        "Documentation": "docs/README.md",
        "Changelog": "CHANGELOG.md",
        "Security": "SECURITY.md",
    }
    return {name: f"{address}/blob/main/{place}" if place else address for name, place in places.items() if address}


def description(text: str, address: str) -> str:
    """The README as a package index shows it, where a relative link would lead nowhere."""
    if not address:
        return text
    absolute = re.sub(r"(!\[[^\]]*\]\()(?![a-z]+:|#)", rf"\g<1>{address}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?![a-z]+:|#)", rf"\g<1>{address}/blob/main/", absolute)


setup(
    long_description=description(Path("README.md").read_text(encoding="utf-8"), ADDRESS),
    long_description_content_type="text/markdown",
    project_urls=urls(ADDRESS),
    ext_modules=[
        Extension(
            "reconverge.kernel._native",
            sources=sorted(map(str, NATIVE.rglob("*.c"))),
            depends=sorted(map(str, NATIVE.rglob("*.h"))),
            include_dirs=[str(NATIVE)],
            # Python and C have to agree to the last bit, so no two operations may be made into one.
            extra_compile_args=["-std=gnu11", "-O2", "-ffp-contract=off", "-fwrapv", "-fvisibility=hidden"],
            optional=True,
        )
    ],
)
