"""Which names are public: what the API reference shows, and what a release keeps.

    python -m docs.tools.public

writes them to tests/project/public_names.txt, which a test compares with the code. Run it after a name was added; one
that is gone, or is called otherwise, breaks what users have written (docs/reference/versioning.md).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

SNAPSHOT: Final = Path(__file__).parents[2] / "tests" / "project" / "public_names.txt"
MODULES: Final = (
    "reconverge",
    "reconverge.hooks",
    "reconverge.hub",
    "reconverge.integrations",
    "reconverge.integrations.aiohttp",
    "reconverge.integrations.asgi",
    "reconverge.integrations.config",
    "reconverge.integrations.decorators",
    "reconverge.integrations.django",
    "reconverge.integrations.fastapi",
    "reconverge.integrations.flask",
    "reconverge.integrations.grpc",
    "reconverge.integrations.httpx",
    "reconverge.integrations.opentelemetry",
    "reconverge.integrations.prometheus",
    "reconverge.integrations.requests",
    "reconverge.integrations.servers",
    "reconverge.integrations.shedding",
    "reconverge.integrations.wsgi",
    "reconverge.shedding",
    "reconverge.testing",
    "reconverge.testing.fixtures",
    "reconverge.usage",
)
"""Those that an application may import from."""
ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
"""Of a default that has no other text; it is another one in each process."""
HIDDEN: Final = {
    "Agent": {
        "answers",
        "clock",
        "cut_off",
        "declare",
        "look",
        "on_forget",
        "plan_pace",
        "requires_hub",
        "start_over_after_fork",
        "stop_for_good",
        "watch",
    },
    "Limiter": {"control"},
    "RateLimiter": {"control"},
    "SlotLimiter": {"control"},
    "Limit": {
        "bucket",
        "calendar",
        "counts_as",
        "dated",
        "nominal",
        "smooth",
        "unit",
        "variant",
        "warmup_ns",
        "window_ns",
        "withheld",
    },
    "Request": {"inner_paths", "seek_templates", "templates"},
    "Rule": {"cold", "ever_waits"},
    "Outcome": {
        "fields_beside",
        "finish",
        "guard",
        "metered",
        "refusal",
        "rulings",
        "shadows",
        "take_back",
        "unsettled",
    },
}
"""Of public classes, what other parts of reconverge use and applications do not; it may change in any release."""


def exported(module: str) -> list[str]:
    """What a module offers: its `__all__`, or what it defines itself."""
    found: Any = import_module(module)
    if hasattr(found, "__all__"):
        return sorted(found.__all__)
    return sorted(
        name for name, value in vars(found).items() if name[0] != "_" and getattr(value, "__module__", None) == module
    )


def members(cls: type) -> list[str]:
    """What applications may use of a class: methods, properties and fields."""
    names = {name for each in cls.__mro__ if each.__module__.startswith("reconverge") for name in vars(each)}
    if is_dataclass(cls):
        names |= {field.name for field in fields(cls)}
    return sorted(name for name in names if name[0] != "_" and name not in HIDDEN.get(cls.__name__, ()))


def parameters(value: Any) -> str:
    """How it is called, without types; nothing for what is not called."""
    if not callable(value):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return ADDRESS.sub("", str(inspect.Signature(bare)))


def names() -> Iterator[str]:
    """Each public name, with how it is called, as a line."""
    for module in MODULES:
        found: Any = import_module(module)
        for name in exported(module):
            value: Any = getattr(found, name)
            yield f"{module}.{name}{parameters(value)}"
            if inspect.isclass(value) and value.__module__.startswith("reconverge"):
                yield from (
                    f"{module}.{name}.{member}{parameters(getattr(value, member, None))}" for member in members(value)
                )


def main() -> None:
    """Write the snapshot, and say how many names there are."""
    lines = list(names())
    SNAPSHOT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} public names in {SNAPSHOT.name}")


if __name__ == "__main__":
    main()
