"""What happens to which fleet, when, and what is promised meanwhile: scenarios as values, and the catalogue of all."""
