"""The scripts that an application's commands give to interpreters, as a part of its identity."""

from __future__ import annotations

from kongming.campaigns.point_templates import words_at
from kongming.campaigns.preregistration import files_digest
from kongming.explore.space import Space
from kongming.profiling.plans.identity import files_of, scripts_named
from kongming.records.application import Application


def scripts_digest(app: Application, space: Space) -> str:
    """Return 8 hexadecimal digits of the names and contents of the scripts that are there now;
    empty without any. A name with placeholders is that of all values of its parameters."""
    words = [word for script in scripts_named(app) for word in words_at(script, space)]
    files = files_of(app, words)
    return files_digest(files)[:8] if files else ""
