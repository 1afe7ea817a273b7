"""What decisions and exchanges cost, side by side with what else there is."""
