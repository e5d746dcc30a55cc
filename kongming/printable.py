"""Texts of others, such as names, where people read them: on a terminal and in a log.

An escape sequence in a name would be obeyed by the terminal, and a line break would begin a line of
a log that no program wrote.
"""

from __future__ import annotations

import logging
import sys
from types import TracebackType

_BREAKS = "\x85\u2028\u2029"
_DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""They turn the order around in which the rest of a line is shown."""

_LINE = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), *map(ord, _BREAKS + _DIRECTIONS))
}
_LINE |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_LINES = {code: shown for code, shown in _LINE.items() if code not in (ord("\n"), ord("\t"))}


def printable(text: str, *, lines: bool = False) -> str:
    """``text`` with control characters as escapes, as ``\\x1b``; ``lines`` keeps line breaks and
    tabs."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_LINES if lines else _LINE)


_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class PrintableFormatter(logging.Formatter):
    """A record is one line, and its traceback lines that are indented: none can be forged."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: _Raised) -> str:  # noqa: N802
        text = super().formatException(ei)
        return "\n".join(f"  {printable(line)}" for line in text.split("\n"))


def log_to_stderr(
    level: int,
    form: str = "%(asctime)s %(levelname)s %(message)s",
    *filters: logging.Filter,
    force: bool = False,
) -> None:
    """Log to stderr from ``level`` on; ``force`` in place of what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter(form))
    for each in filters:
        handler.addFilter(each)
    logging.basicConfig(level=level, handlers=[handler], force=force)
