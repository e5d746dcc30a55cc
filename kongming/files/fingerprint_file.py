"""Reading of a file that ``kongming fingerprint --json`` wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kongming.files.missing_file import unreadable
from kongming.records.errors import IncompatibleError, InputError
from kongming.records.fingerprint import Fingerprint

_HINT = "Write one with: kongming fingerprint --json > FILE"


def read_fingerprint(file: Path, *, field: str | None = None) -> Fingerprint:
    """Read a fingerprint from ``file``, ``-`` for the standard input; ``field``: the option that
    named it.

    Raises:
        InputError: the file cannot be read, or holds no fingerprint.
        IncompatibleError: a newer KONGMING wrote it.
    """

    def refusal(what: str) -> InputError:
        return InputError(f"{file} {what}.", field=field, hint=_HINT)

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except OSError as error:
        raise unreadable(file, error, _HINT, field=field) from error
    except UnicodeDecodeError as error:
        raise refusal("is not UTF-8 text") from error
    if not text.strip():
        raise refusal("is empty")
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"is not JSON ({error})") from error
    if not isinstance(document, dict) or "surrogates" not in document:
        raise refusal("holds no fingerprint")
    try:
        return Fingerprint.from_dict(document)
    except IncompatibleError:
        raise
    except InputError as error:
        raise refusal(f"is not a fingerprint ({error.message.rstrip('.')})") from error
