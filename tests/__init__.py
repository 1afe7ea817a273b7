"""Claims, each shown to be true."""
