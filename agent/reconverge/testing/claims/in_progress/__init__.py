"""Claims about limits on work in progress, whose charges count until they are released."""
