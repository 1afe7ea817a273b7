"""Each framework, without a server and behind real ones."""
