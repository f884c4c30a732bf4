"""Who asks: keys, tenants, and how much each may have at once."""
