"""Tests of the commands about keys of limits."""
