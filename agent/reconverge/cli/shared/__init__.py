"""Parts that several commands share: calls to a hub, options, tables, quantities and pictures."""
