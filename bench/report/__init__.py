"""Reports findings: rows, tables, charts, targets, and the machine that they were measured on."""
