"""Which surrogates this node has, at which sizes, and in which suites."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from kongming.errors import InputError, ProbeError, UnknownNameError
from kongming.fingerprint import NodeFacts
from kongming.probes.binary import locate, stream
from kongming.probes.folders import in_memory, io_folder
from kongming.probes.node import memory_limit_bytes, node_facts

SUITES = ("quick", "standard", "full")
"""Named suites, from the shortest to the longest."""

MEMORY_SHARE = 0.25
"""Share of the node's memory that the surrogates may use together."""

_LEAST_BYTES = 1 << 20
_IO_BYTES = 2 << 30
_IO_WHOLE_DISK = 20 << 30


@dataclass(frozen=True, slots=True)
class Surrogate:
    """One micro-benchmark, as the binary describes it for this node's sizes."""

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

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Surrogate:
        """Raises ProbeError when the binary's line lacks a key."""
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
    """Every surrogate that a node has. ``version`` changes when a name or a size does.

    ``arguments`` are the sizes to give to the binary, ``directory`` where its files are.
    """

    version: str
    surrogates: tuple[Surrogate, ...]
    arguments: tuple[str, ...]
    directory: Path

    def surrogate(self, name: str) -> Surrogate:
        """Raises UnknownNameError, which suggests the nearest names."""
        for known in self.surrogates:
            if known.name == name:
                return known
        hint = None
        for known in self.surrogates:
            if known.instead_of == name:
                hint = f"On this node it is measured as {known.name}, for lack of room."
        names = (known.name for known in self.surrogates)
        raise UnknownNameError("surrogate", name, names, hint=hint)

    def inducer(self, name: str) -> Surrogate:
        """The surrogate, if it can be a load.

        Raises:
            UnknownNameError: there is none of this name.
            InputError: it is a probe only; says why.
        """
        found = self.surrogate(name)
        if "inducer" not in found.roles:
            reason = found.no_inducer_reason or "it is a probe only."
            raise InputError(f"{name} cannot be induced: {reason}", field="surrogate")
        return found

    def inducers(self) -> dict[str, str]:
        """Resource families, by the name of each surrogate that can be a load."""
        return {known.name: known.family for known in self.surrogates if "inducer" in known.roles}

    def names_of(self, suite: str) -> tuple[str, ...]:
        """Names in a named suite, in the binary's order. Raises UnknownNameError."""
        if suite not in SUITES:
            raise UnknownNameError("suite", suite, SUITES)
        return tuple(known.name for known in self.surrogates if suite in known.suites)

    def probe_arguments(self, cpu: int, seed: int | None = None) -> list[str]:
        """The binary's ``probe`` with all but the division of time and the names."""
        given = ["probe", *self.arguments, "--dir", str(self.directory), "--cpu", str(cpu)]
        return given if seed is None else [*given, "--seed", str(seed)]


def load_suite(node: NodeFacts | None = None, directory: str | Path | None = None) -> Suite:
    """The surrogates of ``node`` (default: this one), with I/O files in ``directory``.

    Sizes follow from the node's total memory, its limits, its caches and the total size of the
    file system: never from what is free at the moment.

    Raises:
        InputError: ``directory`` does not exist.
        ProbeError: the binary is missing or failed.
    """
    node = node_facts() if node is None else node
    folder = io_folder(directory)
    budget = max(_LEAST_BYTES, int(memory_limit_bytes(node) * MEMORY_SHARE))
    arguments = (
        *("--l2", str(node.l2_bytes)),
        *("--llc", str(node.llc_bytes)),
        *("--memory", str(budget)),
        *("--io-bytes", str(io_bytes(folder, budget))),
    )
    surrogates = _listed(str(locate()), arguments)
    return Suite(_version(surrogates, arguments), surrogates, arguments, folder)


def io_bytes(directory: Path, memory_budget: int | None = None) -> int:
    """Size of the I/O file: 2 GiB, or on a small file system a tenth of it, as a power of two.

    Where files live in memory (tmpfs) it counts as memory, and is at most an eighth of
    ``memory_budget``: there is no device behind it to measure anyway.
    """
    for folder in (directory, *directory.parents):
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        total = status.f_blocks * status.f_frsize
        if memory_budget is not None and in_memory(folder):
            return _power_of_two(min(memory_budget // 8, total // 10 or memory_budget))
        # A file system that tells no size (some overlays and network ones) is taken as large.
        if total == 0 or total >= _IO_WHOLE_DISK:
            return _IO_BYTES
        return _power_of_two(total // 10)
    return _IO_BYTES


def _power_of_two(most: int) -> int:
    return max(_LEAST_BYTES, 1 << max(0, most.bit_length() - 1))


# The binary's path is part of the key: tests and upgrades change it under one process.
@lru_cache(maxsize=16)
def _listed(binary: str, arguments: tuple[str, ...]) -> tuple[Surrogate, ...]:
    surrogates = tuple(Surrogate.from_dict(line) for line in stream(["list", *arguments]))
    if not surrogates:
        raise ProbeError(f"{binary} lists no surrogates.")
    return surrogates


def _version(surrogates: tuple[Surrogate, ...], arguments: tuple[str, ...]) -> str:
    lines = sorted(f"{known.name} {known.size_bytes}" for known in surrogates)
    # The size of the file that blocks are drawn from matters as much as the size of a block.
    text = "\n".join([*lines, arguments[-1]])
    return "1-" + hashlib.sha256(text.encode()).hexdigest()[:8]
