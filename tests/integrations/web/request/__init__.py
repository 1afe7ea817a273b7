"""The key, the address and the path of a request."""
