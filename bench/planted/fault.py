"""A planted fault: a text of the production code, the text that replaces it, and the worlds that can show it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from reconverge.simulation.explore.events import COARSE
from reconverge.simulation.model.guards import ProofGuard

KERNEL: Final = "agent/reconverge/kernel"
REPORTS: Final = f"{KERNEL}/reporting/cell_reports.py"
SYNCER: Final = "agent/reconverge/exchange/syncer.py"
MERGE: Final = "sync/reconverge_sync/merge"

# The merge rule of a broker's members is Python. A server's is a script, which lacks the fault: the answers that nodes
# got are compared with the faulty definition.
AT_BOTH: Final = ("partition-one-on-mqtt", "partition-one")
AFTER_A_LOSS: Final = ("partition-all-on-mqtt", "killed-empty")
ASKED: Final = "sliding windows at a broker, or requests that ask there"
BUCKETS: Final = "a bucket whose lease ends, or about which a request asks"
CLOCKS: Final = "clocks that go at different rates"
LAPSED: Final = "a node whose lease ends while the hub keeps its data"
LEASES: Final = "a broker at which a node leaves under load, or loses its lease"
QUOTAS: Final = "a quota that changes"


class Patch(NamedTuple):
    """A text that one file contains exactly once, and the text that replaces it."""

    file: str
    old: str
    new: str

    def occurrences(self, root: Path) -> int:
        """Returns how often the file has the old text."""
        return (root / self.file).read_text().count(self.old)

    def apply(self, root: Path) -> None:
        """Replaces the text. Raises ValueError if the file does not have it exactly once."""
        path = root / self.file
        if self.occurrences(root) != 1:
            raise ValueError(f"{self.file} does not have this exactly once: {self.old!r}")
        path.write_text(path.read_text().replace(self.old, self.new))


class ExploredCase(NamedTuple):
    """The small world in which exploration looks for a fault."""

    kind: str
    asking: bool = False
    quota: int = 2
    policy: str = "strict"
    grain: str = COARSE
    window_s: float = 2.0
    faults: int = 2
    start: tuple[str, ...] = ()
    """Events with which the search begins, because a search from nothing would not get so deep in the time."""
    more: tuple[str, ...] = ()
    """The extras of the case, as `--more` names them."""

    def options(self) -> list[str]:
        """Returns the options of `python -m reconverge.simulation.explore`."""
        asking = "yes" if self.asking else "no"
        options = ["--kind", self.kind, "--policy", self.policy, "--grain", self.grain, "--asking", asking]
        options += ["--quota", str(self.quota), "--window", f"{self.window_s:g}", "--faults", str(self.faults)]
        options += [f"--more={name}" for name in self.more]
        return options + [f"--start={name}" for name in self.start]


class PlantedFault(NamedTuple):
    """A fault, the guard of the model that it removes from the code, and the searches that ought to find it."""

    name: str
    effect: str
    patches: tuple[Patch, ...]
    case: ExploredCase
    guard: ProofGuard | None = None
    chaos: str = ""
    """The chaos scenario that ought to find the fault; empty if none has it."""
    followed: tuple[str, ...] = ()
    """The chaos scenarios whose steps are followed; if there are none, that of `chaos`."""
    beyond_chaos: str = ""
    """The reason why no scenario has the fault."""
    reckless: bool = False
    """Whether finders give silence absurd constants (`simulation/reckless.py`), as only silent nodes show the fault."""
    modelled: bool = True
    """Whether the model has limits that show the fault. The binding follows no others."""
    remark: str = ""
    """The reason why a finder cannot find the fault, if that is known; else empty."""
