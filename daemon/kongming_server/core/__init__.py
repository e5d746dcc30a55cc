"""What the server knows and answers from memory: pure, without files, sockets or a store."""
