"""The one catalogue of metrics; names start with paceline_ and are never renamed."""
