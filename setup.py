"""The compiled kernel, which is built where there is a C compiler; pyproject.toml says all the rest."""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("agent/reconverge/kernel/native")

setup(
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
    ]
)
