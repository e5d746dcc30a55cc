"""Placeholders of parameters in an application: ``{nodes}`` in its commands and environment."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np

from kongming.explore.dimensions import Value
from kongming.explore.runs_table import text_of
from kongming.explore.space import Space
from kongming.profiling.plans.identity import first_word, identity
from kongming.records.application import Application, Command
from kongming.records.errors import InputError

_PLACEHOLDER = re.compile(r"(?<!\$)\{([^\W\d]\w*)\}")
"""A name in braces; ``${name}`` is the shell's."""

OWN = ("dir", "rank")
"""What runs fill in themselves."""

_MAKING = ("setup", "prepare")

_MOST_PROGRAMS = 64
"""Executables, or files of a word, of which the content is compared, at the most."""

COMMANDS = ("command", "setup", "prepare", "cleanup", "load", "ready")


def check_placeholders(
    app: Application, names: Collection[str], filled_elsewhere: Collection[str] = ()
) -> None:
    """Check that the placeholders of an application are the parameters of a space.

    ``filled_elsewhere`` are parameters that need no placeholder.

    Raises:
        InputError: there is a placeholder without a parameter, or a parameter without one.
    """
    for name in names:
        if name in OWN:
            raise InputError(
                "is filled in by every run already.",
                field=f"space: {name}",
                value=name,
                hint="Give the parameter another name.",
            )
    used: set[str] = set()
    for where, text in _texts(app):
        for name in _PLACEHOLDER.findall(text):
            if name not in names and name not in OWN:
                raise InputError(
                    "stands for no parameter of the space.",
                    field=f"apps.{app.name}.{where}",
                    value=f"{{{name}}}",
                    allowed=", ".join(f"{{{known}}}" for known in names),
                    hint="Braces that belong to the command are written with a space: { print }.",
                )
            used.add(name)
    for name in names:
        if name not in used and name not in filled_elsewhere:
            raise InputError(
                "has no placeholder in the application: its runs would all be alike.",
                field=f"space: {name}",
                allowed=f"{{{name}}} in the command, setup, prepare or env of apps.{app.name}",
            )


def identity_at(app: Application, space: Space) -> str:
    """Compute the identity of an application with placeholders: where a parameter chooses the
    executable, the content of each that it may choose is part of it."""
    program = first_word(app.command)
    is_made = any(PurePath(program).name in text for where, text in _texts(app) if where in _MAKING)
    # What set-up makes is not there before the first run; its commands are in the identity.
    chosen = set() if is_made else set(_PLACEHOLDER.findall(program))
    all_of = [identity(filled(app, each)) for each in _choices(chosen, space)]
    if not all_of:
        return identity(app)
    return hashlib.sha256(" ".join([identity(app), *all_of]).encode()).hexdigest()[:16]


def words_at(word: str, space: Space) -> list[str]:
    """Return what a word of a command becomes at the values of the parameters in it, up to 64;
    none where one of them has more values."""
    chosen = set(_PLACEHOLDER.findall(word)) & set(space.names)
    if not chosen:
        return [word]
    return [
        _fill(word, {name: text_of(value) for name, value in each.items()})
        for each in _choices(chosen, space)
    ]


def _choices(names: Collection[str], space: Space) -> list[dict[str, Value]]:
    """Return the first 64 combinations of the values of some parameters; none without a parameter,
    or where one has more values."""
    choosing = [dimension for dimension in space.dimensions if dimension.name in names]
    counts = [dimension.count for dimension in choosing]
    if not choosing or any(count is None or count > _MOST_PROGRAMS for count in counts):
        return []
    values = [[each.decode(code) for code in each.grid().tolist()] for each in choosing]
    order = [dimension.name for dimension in choosing]
    combined = itertools.islice(itertools.product(*values), _MOST_PROGRAMS)
    return [dict(zip(order, each, strict=True)) for each in combined]


def filled(app: Application, point: Mapping[str, Value | None]) -> Application:
    """Return an application with the placeholders of a point filled; other braces are left as they
    are. A parameter that is None does not exist at the point, and has an empty text."""
    values = {name: text_of(value) for name, value in point.items()}
    commands: dict[str, Any] = {name: _filled(getattr(app, name), values) for name in COMMANDS}
    env = {name: _fill(text, values) for name, text in app.env.items()}
    return replace(app, env=env, **commands)


def at_some_point(app: Application, space: Space) -> Application:
    """Return an application at a point of a space, always the same, to see what its commands are
    like."""
    [point] = space.decode(space.draw(1, np.random.default_rng(0)))
    return filled(app, {name: point.get(name) for name in space.names})


def _fill(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _filled(command: Command | None, values: Mapping[str, str]) -> Command | None:
    if command is None:
        return None
    if isinstance(command, str):
        return _fill(command, values)
    return tuple(_fill(part, values) for part in command)


def _texts(app: Application) -> list[tuple[str, str]]:
    texts = [(f"env.{name}", text) for name, text in app.env.items()]
    for name in COMMANDS:
        command: Command | None = getattr(app, name)
        if command is not None:
            parts = (command,) if isinstance(command, str) else command
            texts += [(name, part) for part in parts]
    return texts
