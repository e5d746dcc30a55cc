"""Anonymisation of observations: names, ids, paths, commands and tags are removed or hashed."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping
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
"""The text for a reason that may hold paths or a program's output."""

_HARMLESS = re.compile(r"exit status \d+|did not end within [0-9.]+ s|was killed by SIG[A-Z0-9]+")


@dataclass(frozen=True, slots=True)
class Salt:
    """Salt of the hashes of ids. With the same salt a machine has the same id in every export;
    without the salt an id cannot be traced to a machine. Random unless given."""

    text: str = field(default_factory=lambda: secrets.token_hex(16))

    def hashed(self, identifier: str) -> str:
        """The hash of an id: 12 hexadecimal digits."""
        return hashlib.sha256(f"{self.text}\n{identifier}".encode()).hexdigest()[:12]


def anonymised(
    observations: Observations, salt: Salt, *, keep_tags: Collection[str] = ()
) -> Observations:
    """Anonymise: sessions, machines and instances become salted hashes.

    What remains is the hardware, kernel and hypervisor, the provider and type of the instance, the
    names, units and identities of programs (which match programs across machines), the tags of
    ``keep_tags``, and the kinds of reasons.
    """
    table = observations.table
    for column in ("session", "machine"):
        table = _set_column(table, column, _replaced(table[column], salt.hashed))
    table = _set_column(table, "reason", _replaced(table["reason"], _reason))
    sessions = {
        salt.hashed(name): _session(session, salt, keep_tags)
        for name, session in observations.sessions.items()
    }
    return Observations(table, sessions, anonymised=True)


def apart(observations: Observations) -> str | None:
    """Return a note where files may have been anonymised apart from one another, or only some of
    them, so that one machine may have an id in each; None where there is no sign of that."""
    anonymised = len(observations.hashed)
    if anonymised and not observations.anonymised:
        files = "1 file is" if anonymised == 1 else f"{anonymised} files are"
        return (
            f"Only {files} anonymised. A machine that is also in the others has another id there, "
            "and counts as several machines. Give all files as they were recorded, or export all "
            "together with --anonymise."
        )
    machines = frozenset().union(*observations.hashed)
    if len(machines) <= max(map(len, observations.hashed), default=0):
        return None
    return (
        f"{anonymised} files are anonymised. If that was done with different salts, a machine that "
        "is in several has another id in each, and counts as several machines. Export them "
        "together, or give all the same --salt."
    )


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
    match = _HARMLESS.match(text)
    return FAILED if match is None else match[0]


def _replaced(
    column: pyarrow.ChunkedArray, replacement: Callable[[str], str]
) -> pyarrow.ChunkedArray:
    """Replace the strings of a column; ``replacement`` is called once for each distinct one."""
    encoded = column.combine_chunks().dictionary_encode()
    values = pyarrow.array(
        [None if value is None else replacement(value) for value in encoded.dictionary.to_pylist()],
        type=pyarrow.string(),
    )
    return pyarrow.chunked_array([compute.take(values, encoded.indices)])


def _set_column(table: pyarrow.Table, name: str, column: pyarrow.ChunkedArray) -> pyarrow.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), column)
