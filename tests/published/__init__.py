"""Tests of what settings and contracts have in common as signed documents."""
