"""The limits of each customer: plans, contracts, how they change while the fleet runs, and what was used."""
