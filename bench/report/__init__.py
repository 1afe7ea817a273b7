"""Findings: rows, tables, charts, aims, and the machine that they were measured on."""
