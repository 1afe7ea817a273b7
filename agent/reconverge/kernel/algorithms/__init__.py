"""The arithmetic of each algorithm: how use is measured against an allowance."""
