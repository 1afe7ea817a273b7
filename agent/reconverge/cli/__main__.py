"""Runs `python -m reconverge.cli`, for machines where the command `reconverge` is not on the path."""

from __future__ import annotations

from reconverge.cli import main

if __name__ == "__main__":
    main()
