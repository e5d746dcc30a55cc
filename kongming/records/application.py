"""An application: a command to run, with its set-up, input and metric. A record without I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from kongming.records.errors import MALFORMED, InputError

Command = str | tuple[str, ...]
"""A shell line, or an argv that no shell sees."""

SCHEMA = 1
"""Version of the JSON form of an application."""

SCRATCH = "{dir}"
"""What stands for the scratch folder in a command; every other brace is left as it is."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Number that is read from the output: the first group of the last match of ``pattern``."""

    pattern: str
    unit: str
    better: Literal["lower", "higher"] = "lower"


@dataclass(frozen=True, slots=True)
class Application:
    """One ``[apps.NAME]`` table. ``metric`` None means wall seconds of ``command``.

    A batch application is timed from start to end. A service (``kind = "service"``) is started
    once, polled with ``ready``, given ``warmup_s``, and driven by ``load`` on CPU ``load_cpu``
    (None: the application's own), whose output holds the metric. ``cpus`` is how many CPUs it
    uses; ``timeout_s`` bounds one run.
    """

    name: str
    command: Command
    kind: Literal["batch", "service"] = "batch"
    setup: Command | None = None
    prepare: Command | None = None
    cleanup: Command | None = None
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 1
    cache: Literal["warm", "cold"] = "warm"
    timeout_s: float = 600.0
    check: str | None = None
    metric: Metric | None = None
    ready: Command | None = None
    warmup_s: float = 0.0
    load: Command | None = None
    load_cpu: int | None = None

    @property
    def metric_unit(self) -> str:
        return "s" if self.metric is None else self.metric.unit

    @property
    def better(self) -> str:
        return "lower" if self.metric is None else self.metric.better

    @property
    def ranked(self) -> bool:
        """Return whether the command is started once for each machine, as it has the machine's
        {rank}."""
        command = self.command
        return "{rank}" in (command if isinstance(command, str) else " ".join(command))

    def accepts(self, output: str) -> bool:
        """Return whether the output of a run matches ``check``; without one any does."""
        return self.check is None or bool(re.search(self.check, output, re.MULTILINE))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, which the store keeps so that a name is enough to run it again."""
        return {"schema": SCHEMA, **asdict(self), "env": dict(self.env)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Application:
        """Raises InputError for a document that ``to_dict`` did not write."""
        values = {k: v for k, v in document.items() if k != "schema"}
        known = {f.name for f in fields(cls)}
        if document.get("schema") != SCHEMA or not known >= set(values) >= {"name", "command"}:
            raise InputError("The application is not one that this KONGMING wrote.", field="app")
        for key in ("command", "setup", "prepare", "cleanup", "ready", "load"):
            if isinstance(values.get(key), list):
                values[key] = tuple(values[key])
        try:
            if values.get("metric") is not None:
                values["metric"] = Metric(**values["metric"])
            return cls(**values)
        except MALFORMED as error:
            raise InputError(f"The application is not valid ({error!r}).", field="app") from error


def fill(command: Command, scratch: str) -> Command:
    """The command with ``{dir}`` replaced by ``scratch``; all other braces are left alone."""
    if isinstance(command, str):
        return command.replace(SCRATCH, scratch)
    return tuple(part.replace(SCRATCH, scratch) for part in command)
