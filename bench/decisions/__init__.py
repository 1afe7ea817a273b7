"""What one decision costs: time, memory, threads, the longest pause; ours beside other limiters."""
