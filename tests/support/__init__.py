"""The vocabulary of tests: servers, fleets, programs. The only part that `chaos` and `bench` may import."""
