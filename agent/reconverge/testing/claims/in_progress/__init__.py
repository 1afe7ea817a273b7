"""Claims about what is in progress: limits whose charges count until they are given back."""
