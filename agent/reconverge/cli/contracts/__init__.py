"""The command `reconverge contracts`: contracts in files and at a hub; each subcommand has a file of its own."""
