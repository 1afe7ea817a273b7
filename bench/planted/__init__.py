"""Plants faults into the production code, and tries which ways of testing find each."""
