"""A program that charges and reports usage, and ends as its test chooses. Arguments: hub, namespace, count, end."""

from __future__ import annotations

import os
import signal
import sys
from threading import Event

from reconverge.usage import Meter, UsageReporter


def main() -> None:
    """Charges, and ends as ordered: "exit", "sigterm", "fork" or "kill"."""
    hub, namespace, count, how = sys.argv[1:5]
    meter = Meter()
    reporter = UsageReporter(meter, hub, namespace=namespace, interval=3600, timeout=30)
    reporter.start()
    for _ in range(int(count)):
        meter.add("acme", "api")
    if how == "fork":
        child = os.fork()
        for _ in range(int(count)):
            meter.add("acme", "api", 1 if child else 100)
        if child:
            assert os.waitpid(child, 0)[1] == 0
        sys.exit()  # the child, too: each makes its last report
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
        Event().wait(60)


main()
