"""What stands behind each path; other APIs are translated over the same chats."""
