"""A filter of the kernel for who may connect to a port: classic BPF, which needs no privilege."""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress

__all__ = ["MOST_NETWORKS", "address_filter", "admission_filter", "attach"]

_SO_ATTACH_FILTER = 26
_LOAD_BYTE, _LOAD_WORD, _LOAD_KEPT, _KEEP = 0x30, 0x20, 0x60, 0x02
_SHIFT_RIGHT, _AND, _IF_EQUAL, _JUMP, _RETURN = 0x74, 0x54, 0x15, 5, 6
_NETWORK = 0xFFF00000
"""From here on a filter reads the header of IP instead of TCP's."""
_ALL, _NONE = 0xFFFFFFFF, 0
_library = ctypes.PyDLL(None)

MOST_NETWORKS = 250
"""In one filter. The kernel takes 20 kB a socket, which is some 350 networks of IPv6."""

_FINEST, _COARSER = (32, 64), ((24, 48), (16, 32), (8, 16))
"""The bits of a network of IPv4 and of IPv6."""

_Step = tuple[int, int, int, int]


def address_filter(addresses: Iterable[str]) -> bytes:
    """A program of the kernel's packet filter (classic BPF) that drops what comes from these, of
    IPv6 from their networks of 64 bits.

    The kernel gives an accepted connection the filter that its port had, which costs it a little
    for as long as it is open; the other addresses are all that it drops.
    """
    networks = _networks(_parsed(addresses), *_FINEST)
    return _program(networks[:MOST_NETWORKS], *_FINEST, _NONE, _ALL)


def admission_filter(addresses: Iterable[str]) -> bytes:
    """One that drops all but what comes from these; from the larger networks that they are in,
    where they are too many."""
    parsed = _parsed(addresses)
    for bits in (_FINEST, *_COARSER):
        networks = _networks(parsed, *bits)
        if len(networks) <= MOST_NETWORKS:
            break
    return _program(networks, *bits, _ALL, _NONE)


def _parsed(addresses: Iterable[str]) -> set[tuple[int, int]]:
    """Version and number of each that is one."""
    parsed = set[tuple[int, int]]()
    for text in addresses:
        with suppress(ValueError):
            address = ipaddress.ip_address(text)
            parsed.add((address.version, int(address)))
    return parsed


def _networks(
    parsed: Iterable[tuple[int, int]], four_bits: int, six_bits: int
) -> list[tuple[int, int]]:
    """Version and number of each network that these are in, without the bits of hosts."""
    hosts = {4: 32 - four_bits, 6: 128 - six_bits}
    return sorted(
        {(version, value >> hosts[version] << hosts[version]) for version, value in parsed}
    )


def _program(
    networks: Iterable[tuple[int, int]], four_bits: int, six_bits: int, match: int, other: int
) -> bytes:
    """Return what returns ``match`` for these networks, and ``other`` for all else."""
    mask = _ALL << (32 - four_bits) & _ALL
    high, low = divmod(((1 << 64) - 1) >> (64 - six_bits) << (64 - six_bits), 1 << 32)
    four: list[_Step] = [(_LOAD_WORD, 0, 0, _NETWORK + 12), (_AND, 0, 0, mask)]
    # To read a packet takes the kernel ten steps, to read what was kept one.
    six: list[_Step] = [(_LOAD_WORD, 0, 0, _NETWORK + 8), (_AND, 0, 0, high), (_KEEP, 0, 0, 0)]
    six += [(_LOAD_WORD, 0, 0, _NETWORK + 12), (_AND, 0, 0, low), (_KEEP, 0, 0, 1)]
    for version, value in networks:
        if version == 4:
            four += [(_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, match)]
        else:
            upper, lower = divmod(value >> 64, 1 << 32)
            six += [(_LOAD_KEPT, 0, 0, 0), (_IF_EQUAL, 0, 3, upper)]
            six += [(_LOAD_KEPT, 0, 0, 1), (_IF_EQUAL, 0, 1, lower), (_RETURN, 0, 0, match)]
    four.append((_RETURN, 0, 0, other))
    program = [
        (_LOAD_BYTE, 0, 0, _NETWORK),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_IF_EQUAL, 1, 0, 4),
        (_JUMP, 0, 0, len(four)),
        *four,
        *six,
        (_RETURN, 0, 0, other),
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
