"""The files that an application's commands name, scripts and inputs, as a part of its identity."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from kongming.campaigns.point_templates import words_at
from kongming.campaigns.preregistration import files_digest
from kongming.explore.space import Space
from kongming.profiling.plans.identity import files_of, input_words
from kongming.records.application import Application

_State = tuple[tuple[int, int] | None, ...]


class NamedFiles:
    """The files that are there now; each is read once. A word with placeholders names those of all
    values of its parameters.

    What changes or appears while the application runs is what it writes: such a file is no longer a
    part of its identity.
    """

    def __init__(self, app: Application, space: Space) -> None:
        self._app = app
        self._words: dict[str, tuple[list[str], _State]] = {}
        for word in input_words(app):
            words = words_at(word, space)
            state = self._state(words)
            if state:
                digest = files_digest(files_of(app, words))[:8]
                self._words.setdefault(digest, (words, state))

    def digests(self) -> Sequence[str]:
        """Return a digest of 8 hexadecimal digits for each word whose files did not change."""
        same = {d: part for d, part in self._words.items() if self._state(part[0]) == part[1]}
        self._words = same
        return tuple(same)

    def _state(self, words: Sequence[str]) -> _State:
        """Return when the files of words were changed, and their sizes: they are not read again."""
        return tuple(_changed(file) for file in files_of(self._app, words))


def _changed(file: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = file.stat()
        return status.st_mtime_ns, status.st_size
    return None
