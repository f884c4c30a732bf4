"""What more than one service needs."""
