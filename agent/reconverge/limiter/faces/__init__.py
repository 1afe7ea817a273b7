"""The limiters that applications ask: of a rate, of work in progress, and their common part."""
