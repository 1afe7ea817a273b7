"""`reconverge contracts`: contracts in files and at a hub, each command in a file of its own."""
