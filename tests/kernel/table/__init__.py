"""Decisions about one limit: charges, corrections, refusals, locks."""
