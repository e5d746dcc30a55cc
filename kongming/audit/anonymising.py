"""Observations without what tells whose they are: names, ids, paths, commands, tags."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow
import pyarrow.compute as compute

from kongming.audit.readings import Observations, Session

_HARDWARE = (
    "architecture",
    "cpu_vendor",
    "cpu_model",
    "microcode",
    "l1d_bytes",
    "l2_bytes",
    "llc_bytes",
    "memory_bytes",
)
_FACTS = ("topology", "kernel", "hypervisor", "huge_pages")
_PROGRAM = ("identity", "unit", "better", "kind", "cpus")
_SESSION = (
    "started_at",
    "suite",
    "suite_version",
    "kongming_version",
    "observed_s",
    "surrogates",
)

FAILED = "failed"
"""What is left of a reason, which can hold paths and a program's output."""

_HARMLESS = re.compile(r"exit status \d+|did not end within [0-9.]+ s|was killed by SIG[A-Z0-9]+")


@dataclass(frozen=True, slots=True)
class Salt:
    """What ids are hashed with. One salt gives one machine the same id in every export, and
    whoever does not know it cannot find out which machine that is. Drawn unless given."""

    text: str = field(default_factory=lambda: secrets.token_hex(16))

    def hashed(self, identifier: str) -> str:
        """12 hexadecimal digits."""
        return hashlib.sha256(f"{self.text}\n{identifier}".encode()).hexdigest()[:12]


def anonymised(
    observations: Observations, salt: Salt, *, keep_tags: Collection[str] = ()
) -> Observations:
    """The same readings, with sessions, machines and instances as salted hashes.

    Of the facts those of the hardware, its kernel and hypervisor stay, of the instance its
    provider and type, of the programs their names, units and identities (by which programs of
    several machines are known to be the same), of tags those of ``keep_tags``, of reasons their
    kind.
    """
    table = observations.table
    for column in ("session", "machine"):
        table = _put(table, column, _replaced(table[column], salt.hashed))
    table = _put(table, "reason", _replaced(table["reason"], _reason))
    sessions = {
        salt.hashed(name): _session(session, salt, keep_tags)
        for name, session in observations.sessions.items()
    }
    return Observations(table, sessions, anonymised=True)


def _session(session: Session, salt: Salt, keep_tags: Collection[str]) -> dict[str, Any]:
    machine = salt.hashed(str(session["machine"]))
    facts = session.get("facts") or {}
    instance = session.get("instance")
    return {
        **_only(session, _SESSION),
        "machine": machine,
        "command": [],
        "facts": {
            "id": machine,
            "name": "",
            "hardware": _only(facts.get("hardware") or {}, _HARDWARE),
            **_only(facts, _FACTS),
            "cgroup": {
                key: value
                for key, value in (facts.get("cgroup") or {}).items()
                if isinstance(value, int | float)
            },
        },
        "instance": None
        if not instance
        else {
            "provider": instance.get("provider"),
            "type": instance.get("type"),
            "id": salt.hashed(str(instance.get("id"))),
            "zone": None,
        },
        "tags": _only(session.get("tags") or {}, tuple(keep_tags)),
        "programs": {
            name: _only(program, _PROGRAM)
            for name, program in (session.get("programs") or {}).items()
        },
    }


def _only(values: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


def _reason(text: str) -> str:
    found = _HARMLESS.match(text)
    return FAILED if found is None else found[0]


def _replaced(column: pyarrow.ChunkedArray, made: Any) -> pyarrow.ChunkedArray:
    """Each of the column's strings as ``made`` makes it; each different one is made once."""
    encoded = column.combine_chunks().dictionary_encode()
    values = pyarrow.array(
        [None if value is None else made(value) for value in encoded.dictionary.to_pylist()],
        type=pyarrow.string(),
    )
    return pyarrow.chunked_array([compute.take(values, encoded.indices)])


def _put(table: pyarrow.Table, name: str, column: pyarrow.ChunkedArray) -> pyarrow.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), column)
