"""The cost of decisions and exchanges, side by side with other limiters."""
