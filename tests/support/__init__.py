"""What tests are written in: servers, fleets, programs. The only part that `chaos` and `bench` may import."""
