"""The common part of the clients of all servers: URLs and TLS."""
