"""What each customer may use: plans, contracts, how they change while the fleet runs, and what was used."""
