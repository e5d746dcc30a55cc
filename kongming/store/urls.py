"""URLs of stores: which one is meant where none is named, and which file it means."""

from __future__ import annotations

import os
import re
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from kongming.files.missing_file import did_you_mean
from kongming.records.errors import InputError
from kongming.settings import url_in_file
from kongming.store import read_only
from kongming.store.store_file import refuse_special_file, sqlite_path

URL_FORMS = "sqlite:///relative/file.db, sqlite:////absolute/file.db or postgresql://host/name"


def default_url() -> str:
    """Return ``KONGMING_STORE``, else the URL in the file that ``KONGMING_STORE_FILE`` names, else
    the URL of a SQLite file in the XDG data folder.

    Raises:
        InputError: that file cannot be read.
    """
    url = os.environ.get("KONGMING_STORE")
    if url:
        return url
    file = os.environ.get("KONGMING_STORE_FILE")
    if file:
        return url_in_file(Path(file))
    return own_url()


def own_url() -> str:
    """Return the URL of the SQLite file in the XDG data folder."""
    data = os.environ.get("XDG_DATA_HOME")
    folder = Path(data) if data else Path.home() / ".local" / "share"
    return f"sqlite:///{folder / 'kongming' / 'kongming.db'}"


def shown_url(store_url: str | None) -> str:
    """Return the URL of a store (None: ``default_url()``) without its passwords."""
    text = store_url or default_url()
    try:
        return without_passwords(sa.make_url(text))
    except (exc.ArgumentError, ValueError):
        # A password may have any character in it that should have been escaped.
        hidden = re.sub("(password=)[^&]*", r"\1...", text)
        return re.sub("//.*@", "//***@", hidden, flags=re.DOTALL)


def without_passwords(url: sa.URL) -> str:
    """Return the text of a URL with dots in the place of its passwords: PostgreSQL takes them as
    parameters as well."""
    if url.host and "@" in url.host:
        # The rest of a password whose @ was not escaped.
        url = url.set(host=url.host.rpartition("@")[2])
    query = {key: "..." if "password" in key else value for key, value in url.query.items()}
    return url.set(query=query).render_as_string(hide_password=True)


def missing_file(store_url: str) -> Path | None:
    """Return the file of a SQLite store that does not exist; None for others."""
    path = store_file_of(store_url)
    return None if path is None or path.exists() else path


def store_file_of(store_url: str) -> Path | None:
    """Return the file of a SQLite store; None for others."""
    try:
        url = sa.make_url(store_url)
    except (exc.ArgumentError, ValueError):
        return None
    path = sqlite_path(url)
    if path is not None:
        refuse_special_file(path)
    return path


def without_mode(store_url: str) -> tuple[str, bool]:
    """Return the URL without ``mode=ro``, and whether it had that."""
    try:
        url, by_mode = read_only.without_mode(sa.make_url(store_url))
    except (exc.ArgumentError, ValueError):
        return store_url, False
    return (url.render_as_string(hide_password=False) if by_mode else store_url), by_mode


def no_such_file(path: Path) -> InputError:
    """Return the error for a store that a command only reads."""
    return InputError(
        f"The store {path} does not exist.",
        hint=did_you_mean(path) or "'kongming profile' and 'kongming import' create it.",
    )
