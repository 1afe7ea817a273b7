"""`reconverge contracts`: contracts in files, each command in a file of its own."""
