"""What every web integration shares: rules, the guard that decides by them, and what a response says."""
