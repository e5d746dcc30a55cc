"""A filter of the kernel for who may connect to a port: classic BPF, which needs no privilege."""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterable

__all__ = ["address_filter", "attach"]

_SO_ATTACH_FILTER = 26
_LOAD_BYTE, _LOAD_WORD, _SHIFT_RIGHT, _IF_EQUAL, _JUMP, _RETURN = 0x30, 0x20, 0x74, 0x15, 5, 6
_NETWORK = 0xFFF00000
"""From here on a filter reads the header of IP instead of TCP's."""
_ALL = 0xFFFFFFFF
_library = ctypes.PyDLL(None)

_MOST_REFUSED = 500
"""Addresses in one filter; the kernel takes programs of some thousand steps."""


def address_filter(addresses: Iterable[str]) -> bytes:
    """A program of the kernel's packet filter (classic BPF) that drops what comes from these.

    The kernel gives an accepted connection the filter that its port had, which costs it a little
    for as long as it is open; the other addresses are all that it drops.
    """
    four: list[tuple[int, int, int, int]] = [(_LOAD_WORD, 0, 0, _NETWORK + 12)]
    six: list[tuple[int, int, int, int]] = []
    for text in tuple(addresses)[:_MOST_REFUSED]:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if address.version == 4:
            four += [(_IF_EQUAL, 0, 1, int(address)), (_RETURN, 0, 0, 0)]
        else:
            high, low = divmod(int(address) >> 64, 1 << 32)
            six += [(_LOAD_WORD, 0, 0, _NETWORK + 8), (_IF_EQUAL, 0, 3, high)]
            six += [(_LOAD_WORD, 0, 0, _NETWORK + 12), (_IF_EQUAL, 0, 1, low), (_RETURN, 0, 0, 0)]
    four.append((_RETURN, 0, 0, _ALL))
    program = [
        (_LOAD_BYTE, 0, 0, _NETWORK),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_IF_EQUAL, 1, 0, 4),
        (_JUMP, 0, 0, len(four)),
        *four,
        *six,
        (_RETURN, 0, 0, _ALL),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def attach(descriptor: int, rules: bytes) -> bool:
    """Let a listening socket drop what ``rules`` name, instead of what others did before; whether
    the kernel takes them."""
    content = ctypes.create_string_buffer(rules)
    # struct sock_fprog
    given = struct.pack("@HL", len(rules) // 8, ctypes.addressof(content))
    failed: int = _library.setsockopt(
        descriptor, socket.SOL_SOCKET, _SO_ATTACH_FILTER, given, len(given)
    )
    return not failed
