"""Parts that commands share: questions to a hub, options, tables, quantities and pictures."""
