"""The hub on a private server."""
