"""Surrogates available on this node, with their sizes and suites."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from kongming.probes.binary import locate, stream
from kongming.probes.folders import in_memory, io_folder
from kongming.probes.node import memory_limit_bytes, node_facts
from kongming.records.errors import InputError, ProbeError, UnknownNameError
from kongming.records.fingerprint import NodeFacts

SUITES = ("quick", "standard", "full")
"""Named suites, from the shortest to the longest."""

MEMORY_SHARE = 0.25
"""Share of the node's memory that all surrogates together may use."""

_MINIMUM_BYTES = 1 << 20
_IO_BYTES = 2 << 30
_IO_WHOLE_DISK = 20 << 30
_WITH_FILE = ("read", "write")


@dataclass(frozen=True, slots=True)
class Surrogate:
    """Micro-benchmark as described by the binary for this node's sizes."""

    name: str
    family: str
    op: str
    unit: str
    roles: tuple[str, ...]
    paper: bool
    suites: tuple[str, ...]
    size_bytes: int | None
    bytes_per_op: int | None
    description: str
    no_inducer_reason: str | None = None
    instead_of: str | None = None

    def to_dict(self) -> dict[str, Any]:
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        return document | {"roles": list(self.roles), "suites": list(self.suites)}

    @property
    def has_file(self) -> bool:
        """Return whether it reads or writes a file in the I/O folder."""
        return self.family in _WITH_FILE

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Surrogate:
        """Parse the binary's description. Raises ProbeError for a missing key."""
        try:
            size, moved = document["size_bytes"], document.get("bytes_per_op")
            return cls(
                name=str(document["name"]),
                family=str(document["family"]),
                op=str(document["op"]),
                unit=str(document["unit"]),
                roles=tuple(str(role) for role in document["roles"]),
                paper=bool(document["paper"]),
                suites=tuple(str(name) for name in document["suites"]),
                size_bytes=None if size is None else int(size),
                bytes_per_op=None if moved is None else int(moved),
                description=str(document["description"]),
                no_inducer_reason=document.get("no_inducer_reason"),
                instead_of=document.get("instead_of"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProbeError(f"A surrogate is described without a valid {error}.") from error


@dataclass(frozen=True, slots=True)
class Suite:
    """All surrogates of a node. ``version`` changes when a name or a size of the quick or the
    standard suite does: profiles, and so models, hold no others. Its part before the dash changes
    with what surrogates do.

    ``arguments`` pass the sizes to the binary, ``directory`` is the folder of its files.
    """

    version: str
    surrogates: tuple[Surrogate, ...]
    arguments: tuple[str, ...]
    directory: Path

    def surrogate(self, name: str) -> Surrogate:
        """Return a surrogate by name. Raises UnknownNameError, which suggests similar names."""
        for surrogate in self.surrogates:
            if surrogate.name == name:
                return surrogate
        hint = None
        for surrogate in self.surrogates:
            if surrogate.instead_of == name:
                hint = f"On this node it is measured as {surrogate.name}, for lack of room."
        names = (surrogate.name for surrogate in self.surrogates)
        raise UnknownNameError("surrogate", name, names, hint=hint)

    def inducer(self, name: str) -> Surrogate:
        """Return a surrogate that can induce load.

        Raises:
            UnknownNameError: there is none of this name.
            InputError: it is a probe only; gives the reason.
        """
        surrogate = self.surrogate(name)
        if "inducer" not in surrogate.roles:
            reason = surrogate.no_inducer_reason or "it is a probe only."
            raise InputError(f"{name} cannot be induced: {reason}", field="surrogate")
        return surrogate

    def inducers(self) -> dict[str, str]:
        """Resource families by name, of the surrogates that can induce load."""
        return {
            surrogate.name: surrogate.family
            for surrogate in self.surrogates
            if "inducer" in surrogate.roles
        }

    def names_of(self, suite: str) -> tuple[str, ...]:
        """Return the names in a suite, in the binary's order. Raises UnknownNameError."""
        if suite not in SUITES:
            raise UnknownNameError("suite", suite, SUITES)
        return tuple(surrogate.name for surrogate in self.surrogates if suite in surrogate.suites)

    def sizes_of(self, surrogate: Surrogate) -> dict[str, int]:
        """Return its sizes in bytes: of what it works on (``data``) and of the file that this
        lies in (``file``), where it has them. Readings are comparable where these agree."""
        sizes = {} if surrogate.size_bytes is None else {"data": surrogate.size_bytes}
        if surrogate.has_file:
            sizes["file"] = int(self.arguments[-1])
        return sizes

    def probe_arguments(self, cpu: int, seed: int | None = None) -> list[str]:
        """Return the arguments of ``probe``, without the schedule and the surrogate names."""
        arguments = ["probe", *self.arguments, "--dir", str(self.directory), "--cpu", str(cpu)]
        return arguments if seed is None else [*arguments, "--seed", str(seed)]


def load_suite(node: NodeFacts | None = None, directory: str | Path | None = None) -> Suite:
    """Load the surrogates of ``node`` (default: this node), with I/O files in ``directory``.

    Sizes depend on the node's total memory, its limits, its caches and the total size of the
    file system, never on what is currently free.

    Raises:
        InputError: ``directory`` does not exist.
        ProbeError: the binary is missing or failed.
    """
    node = node_facts() if node is None else node
    folder = io_folder(directory)
    budget = max(_MINIMUM_BYTES, int(memory_limit_bytes(node) * MEMORY_SHARE))
    arguments = (
        *("--l2", str(node.l2_bytes)),
        *("--llc", str(node.llc_bytes)),
        *("--memory", str(budget)),
        *("--io-bytes", str(io_bytes(folder, budget))),
    )
    surrogates = _list_surrogates(str(locate()), arguments)
    return Suite(_version(surrogates, arguments), surrogates, arguments, folder)


def io_bytes(directory: Path, memory_budget: int | None = None) -> int:
    """Compute the I/O file size: 2 GiB, or a tenth of a small file system, as a power of two.

    On a memory-backed file system (tmpfs) the file counts as memory and is limited to an eighth
    of ``memory_budget``: there is no device to measure anyway.
    """
    for folder in (directory, *directory.parents):
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        total = status.f_blocks * status.f_frsize
        if memory_budget is not None and in_memory(folder):
            return _power_of_two(min(memory_budget // 8, total // 10 or memory_budget))
        # Assume that a file system without a size (some overlays and network ones) is large.
        if total == 0 or total >= _IO_WHOLE_DISK:
            return _IO_BYTES
        return _power_of_two(total // 10)
    return _IO_BYTES


def _power_of_two(limit: int) -> int:
    return max(_MINIMUM_BYTES, 1 << max(0, limit.bit_length() - 1))


# The binary's path is part of the cache key: it may change within one process.
@lru_cache(maxsize=16)
def _list_surrogates(binary: str, arguments: tuple[str, ...]) -> tuple[Surrogate, ...]:
    surrogates = tuple(Surrogate.from_dict(line) for line in stream(["list", *arguments]))
    if not surrogates:
        raise ProbeError(f"{binary} lists no surrogates.")
    return surrogates


def _version(surrogates: tuple[Surrogate, ...], arguments: tuple[str, ...]) -> str:
    lines = sorted(
        f"{surrogate.name} {surrogate.size_bytes}"
        for surrogate in surrogates
        if surrogate.suites != ("full",)
    )
    # The size of the I/O file matters as much as the size of a block.
    text = "\n".join([*lines, arguments[-1]])
    return "1-" + hashlib.sha256(text.encode()).hexdigest()[:8]
