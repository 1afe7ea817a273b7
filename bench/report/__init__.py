"""What was found: rows, tables, charts, what was aimed at, and the machine it was measured on."""
