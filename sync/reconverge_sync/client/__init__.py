"""What the clients of all servers have in common: URLs, TLS, one client for each event loop."""
