"""What stands before a gRPC listener that strangers reach: bounds what gRPC would take in without bound."""
