"""What clients send, before it is a request: bounded as it is read, and then a query in words of neither wire."""
