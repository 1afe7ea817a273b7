"""Load shedding in front of a real service: `python -m bench.shedding`, or `make bench-shedding`."""
