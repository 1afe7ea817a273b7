"""The common part of the clients of all servers: URLs, TLS, one client for each event loop."""
