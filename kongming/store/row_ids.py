"""Primary keys of records: a node's id and the record's own, so that nodes never share a key.

Whoever measures chooses a record's id. Were it the key by itself, a record of one node could take
the place of another node's.
"""

from __future__ import annotations


def row_id(node_id: str, record_id: str) -> str:
    """Return the primary key of a record of this node."""
    # With the length in front no two pairs have one key, whatever characters the ids hold.
    return f"{len(node_id)}:{node_id}:{record_id}"


def record_id(row_id: str) -> str:
    """Return the record's own id."""
    length, _, rest = row_id.partition(":")
    return rest[int(length) + 1 :]
