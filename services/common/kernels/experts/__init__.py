"""A mixture of experts: a router's choice, products of the rows that chose an expert, and their sum."""
