"""Other projects' own tests, run on storages of ours; see docs/guide/migration.md."""
