"""Access: who may call, how they are known, and how much they may take."""

from kongming_server.security.admission import Call, Caller, Guard, current_call
from kongming_server.security.binding import check_bind
from kongming_server.security.roles import PERMISSIONS, PUBLIC, Role, permit
from kongming_server.security.tokens import TokenBook

__all__ = [
    "PERMISSIONS",
    "PUBLIC",
    "Call",
    "Caller",
    "Guard",
    "Role",
    "TokenBook",
    "check_bind",
    "current_call",
    "permit",
]
