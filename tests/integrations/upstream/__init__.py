"""Other projects' own tests, run on storages of ours; see docs/drop-in.md."""
