"""In what a claim is tried: one hub and what is sent to it, or several nodes without loops."""
