"""Check for what of an applications file would fail at once: seen before anything is run."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kongming.records.application import SCRATCH

if TYPE_CHECKING:
    from kongming.records.application import Application, Command

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def problems(apps: Mapping[str, Application]) -> dict[str, str]:
    """Return by application a program that is not found, or a misspelt ``{dir}``."""
    reasons: dict[str, str] = {}
    for name, app in apps.items():
        for key, command in _commands(app):
            reason = _misspelt(command) or _not_found(app, command)
            if reason is not None:
                reasons.setdefault(name, f"{key}: {reason}")
    return reasons


def _commands(app: Application) -> Iterator[tuple[str, Command]]:
    for key in ("setup", "prepare", "command", "load", "cleanup"):
        command = getattr(app, key, None)
        if command is not None:
            yield key, command


def _misspelt(command: Command) -> str | None:
    text = command if isinstance(command, str) else " ".join(command)
    for word in _PLACEHOLDER.findall(text):
        if "{" + word + "}" != SCRATCH and difflib.get_close_matches(word, ["dir"], cutoff=0.6):
            return f"{{{word}}} is not filled in. Did you mean {SCRATCH}?"
    return None


def _not_found(app: Application, command: Command) -> str | None:
    """Ask the shell, which knows its own words too; only about a plain first word."""
    from kongming.profiling.plans.identity import first_word

    word = first_word(command)
    if not word or not re.fullmatch(r"[\w.+-]+", word):
        return None
    lookup = subprocess.run(
        ["/bin/sh", "-c", 'command -v "$0"', word],
        env=os.environ | dict(app.env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return None if lookup.returncode == 0 else f"there is no program {word!r} in PATH."
