"""Try an installed wheel as it is, beside no source tree: `python docs/tools/try_wheel.py`; cibuildwheel does.

The first six lines of the README, on a hub in memory, decided by the compiled kernel that the wheel has to carry.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

README: Final = Path(__file__).parents[2] / "README.md"
REDIS: Final = "redis://localhost:6379/0"


def main() -> None:
    """Run the first program of the README. Raises RuntimeError if the kernel is not the compiled one."""
    program = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    names: dict[str, object] = {"__name__": "six_lines"}
    exec(program.replace(REDIS, "memory://"), names)  # noqa: S102  # our own document

    from reconverge import Agent  # noqa: PLC0415  # the program has to import it first, as a user's does

    kernel = Agent("memory://").stats().kernel
    if kernel != "native":
        raise RuntimeError(f"the kernel of this wheel is {kernel!r}, not the compiled one")
    print(f"reconverge decides, with the {kernel} kernel")


if __name__ == "__main__":
    main()
