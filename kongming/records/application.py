"""An application: a command to run, with its set-up, input and metric. A record without I/O."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from kongming.records.errors import MALFORMED, IncompatibleError, InputError

Command = str | tuple[str, ...]
"""A shell line, or an argv that no shell sees."""

SCHEMA = 1
"""Version of the JSON form of an application."""

DOCUMENT_BYTES = 64 << 10
"""The largest table of an application that is stored, as JSON."""

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

    def __post_init__(self) -> None:
        """Raises InputError for a value that no application can have; the key is its field."""
        for name in ("command", "setup", "prepare", "cleanup", "ready", "load"):
            command = getattr(self, name)
            if command is None and name != "command":
                continue
            parts = (command,) if isinstance(command, str) else command
            if not isinstance(parts, tuple) or not parts or not all(map(_is_text, parts)):
                raise _wrong(name, command, "a shell line, or texts of an argv")
        for name, options in (("kind", ("batch", "service")), ("cache", ("warm", "cold"))):
            if (value := getattr(self, name)) not in options:
                raise _wrong(name, value, " or ".join(options))
        for name, least in (("cpus", 1), ("load_cpu", 0)):
            value = getattr(self, name)
            if value is None and name == "load_cpu":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise _wrong(name, value, f"a whole number from {least}")
        for name in ("workdir", "check"):
            if not (getattr(self, name) is None or _is_text(getattr(self, name))):
                raise _wrong(name, getattr(self, name), "a text")
        if not isinstance(self.env, Mapping) or not all(
            _is_text(text) for pair in self.env.items() for text in pair
        ):
            raise _wrong("env", self.env, "texts by name")
        for name, least_s in (("timeout_s", math.ulp(0.0)), ("warmup_s", 0.0)):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            # JSON and TOML have whole numbers that no float holds.
            if not is_number or not least_s <= value <= sys.float_info.max:
                limit = "from 0" if least_s == 0.0 else "above 0"
                raise _wrong(name, value, f"a number of seconds {limit}")

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


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _wrong(name: str, value: object, allowed: str) -> InputError:
    return InputError("is not valid.", field=name, value=value, allowed=allowed)


def registered(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """An application's table as a store has it. An empty one says nothing but the name.

    Raises:
        InputError: it is none, is another application's, or is too large.
    """
    if not document:
        return {}
    if document.get("name", name) != name:
        raise InputError("is another name.", field="document.name", value=document["name"])
    if len(json.dumps(document)) > DOCUMENT_BYTES:
        raise InputError("is too large.", field="document", allowed=f"{DOCUMENT_BYTES} bytes")
    try:
        known = Application.from_dict({"schema": SCHEMA, "name": name, **document})
    except IncompatibleError:
        raise
    except (InputError, TypeError) as error:
        if isinstance(error, InputError) and error.field in {f.name for f in fields(Application)}:
            raise error.at(f"document.{error.field}") from error
        raise InputError("is not a table of an application.", field="document") from error
    return known.to_dict()


def fill(command: Command, scratch: str) -> Command:
    """The command with ``{dir}`` replaced by ``scratch``; all other braces are left alone."""
    if isinstance(command, str):
        return command.replace(SCRATCH, scratch)
    return tuple(part.replace(SCRATCH, scratch) for part in command)
