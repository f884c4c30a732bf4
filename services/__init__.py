"""The services of paceline."""
