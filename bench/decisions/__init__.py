"""The cost of one decision: time, memory, threads, the longest pause; ours beside other limiters."""
