"""The merge rule, case by case: what the hub grants, remembers and forgets."""
