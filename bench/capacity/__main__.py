"""`python -m bench.capacity`: see `bench.capacity.measured`."""

from __future__ import annotations

import sys

from bench.capacity.measured import main

if __name__ == "__main__":
    sys.exit(main())
