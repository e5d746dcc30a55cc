"""Versioned JSON documents under a checksum, as trained models are kept: numbers and names only,
never a pickle. A document is completely checked before it is used; a damaged or newer one is
refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from kongming.records.errors import MALFORMED, IncompatibleError, InputError

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of document: the ``format`` and ``version`` that it states, its ``name`` in messages,
    and what replaces a damaged one: ``again`` ("train it again") by a ``command``."""

    format: str
    version: int
    name: str
    again: str
    command: str

    def seal(self, payload: Mapping[str, Any], version: int | None = None) -> dict[str, Any]:
        """Return the payload with format, version and checksum. ``version``: the least that can
        hold it, where that is not the newest: what reads no newer one can read it, too.

        Raises:
            ValueError: it holds a number that is not finite.
        """
        document = {"format": self.format, "version": version or self.version, **payload}
        return {**document, "checksum": checksum(document)}

    def read_file(
        self, path: Path, content: bytes, parse: Callable[[Mapping[str, Any]], Content]
    ) -> Content:
        """Return the content of a file of this ``content`` as ``read`` does, with the same errors;
        where it is another kind of file they name it."""
        try:
            document = json.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise self._other(path) from error
        if not self._is_of(document):
            raise self._other(path)
        return self.read(document, parse)

    def read(self, document: object, parse: Callable[[Mapping[str, Any]], Content]) -> Content:
        """Check a document, and return its content by ``parse``, which may raise ``MALFORMED``
        errors where it is damaged.

        Raises:
            InputError: it is another kind of document, or is damaged.
            IncompatibleError: a newer KONGMING wrote it.
        """
        if not self._is_of(document):
            raise InputError(f"This is not a {self.name}.", field="format", allowed=self.format)
        version = document.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise InputError(
                f"The {self.name} has no valid version.", field="version", value=version
            )
        if version > self.version:
            raise IncompatibleError(
                f"The {self.name} has version {version}; this KONGMING reads up to {self.version}.",
                hint=f"Upgrade kongming to read it, or {self.again}.",
            )
        payload = {key: value for key, value in document.items() if key != "checksum"}
        try:
            text = _text(payload)
            intact = document.get("checksum") == _digest(text)
        except (TypeError, ValueError, RecursionError):
            intact = False
        if not intact:
            raise self.damaged("its checksum does not match")
        if "\\ud" in text and not is_unicode(payload):
            raise self.damaged("a text in it is no Unicode")
        try:
            return parse(document)
        except MALFORMED as error:
            raise self.damaged(f"{error!r}") from error

    def _is_of(self, document: object) -> TypeGuard[Mapping[str, Any]]:
        return isinstance(document, Mapping) and document.get("format") == self.format

    def _other(self, path: Path) -> InputError:
        """Return the error for a file that is no document of this kind."""
        return InputError(
            f"{path} is not a {self.name}, or is damaged.",
            hint=f"{self.again.capitalize()}: {self.command}",
        )

    def damaged(self, reason: str) -> InputError:
        return InputError(
            f"The {self.name} is damaged: {reason}.",
            hint=f"{self.again.capitalize()}: {self.command}",
        )


def finite(value: object) -> float:
    """Return a number of a document. Raises ValueError for anything else, infinities and NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def positive(value: object) -> float:
    """Return a number as ``finite`` does; one that is not above 0 raises ValueError as well."""
    number = finite(value)
    if number <= 0.0:
        raise ValueError(f"{value!r} is not above 0")
    return number


def not_negative(value: object) -> float:
    """Return a number as ``finite`` does; one below 0 raises ValueError as well."""
    number = finite(value)
    if number < 0.0:
        raise ValueError(f"{value!r} is below 0")
    return number


def checksum(document: Mapping[str, Any]) -> str:
    """Return the checksum of a document that has none yet."""
    return _digest(_text(document))


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_unicode(value: object) -> bool:
    """Return whether no text of a JSON value has half a surrogate pair, which JSON can write and no
    message can hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
