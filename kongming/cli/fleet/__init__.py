"""Commands about many nodes, answered by a server or by the local store."""
