"""Results as files, as a table, as a page with pictures."""
