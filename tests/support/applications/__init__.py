"""Web applications that tests serve or ask, and the servers and clients around them."""
