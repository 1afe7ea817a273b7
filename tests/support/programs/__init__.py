"""Programs that tests run as processes of their own, and the processes that run them."""
