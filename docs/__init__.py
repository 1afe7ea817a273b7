"""Documents, and the tools that make their pictures and their site."""
