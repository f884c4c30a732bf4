"""Places pairs with Ray and tells gateways where they are; the only package that imports ray."""
