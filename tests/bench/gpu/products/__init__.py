"""Times what computes the products of many rows: tilings beside the library, alone and in whole verifies."""
