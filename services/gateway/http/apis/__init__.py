"""Other APIs over the same chats: each translates its bodies to a chat's, and the parts of the answer to its own."""
