"""Quantities as people read them: three digits in a familiar unit."""

from __future__ import annotations

import math
import re
from decimal import Decimal


def format_seconds(seconds: float | None) -> str:
    """``12.3 ns``, ``4.56 us``, ``789 ms``, ``1.50 s``: three digits in a familiar unit."""
    if seconds is None:
        return "-"
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        # 999.5 of a unit would be shown as 1000: that is one of the next.
        if abs(seconds) * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def format_slowdown(value: float, at_least: bool) -> str:
    """A slowdown, or what it is at the least: ``1.53``, ``>=5.00``."""
    return f"{'>=' if at_least else ''}{value:.2f}"


def format_bandwidth(bytes_per_second: float | None) -> str:
    """``31.2 GB/s`` (powers of ten, as disks and STREAM are given)."""
    if bytes_per_second is None:
        return "-"
    for factor, unit in ((1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s")):
        if bytes_per_second / factor < 999.5:
            return f"{_three_digits(bytes_per_second / factor)} {unit}"
    return f"{_three_digits(bytes_per_second / 1e9)} GB/s"


def format_bytes(count: float | None) -> str:
    """``1.00 MiB`` (powers of two, as memory and files are given)."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1023.5:
            return f"{_three_digits(value) if unit != 'B' else int(value)} {unit}"
        value /= 1024.0
    return f"{_three_digits(value)} GiB"


def format_duration(seconds: float) -> str:
    """``45 s``, ``2 min 05 s``, ``1 h 02 min``: a time to wait for."""
    rounded = max(0, round(seconds))
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def per_cent(value: float, spec: str = ".1f") -> str:
    """A number of per cent, ``12.3 %``, with a space as SI has it; ``spec`` is that of ``format``.

    All that people read is written by this."""
    return f"{value:{spec}} %"


def format_percent(share: float) -> str:
    """A share in per cent, with two digits, or with all before the point: ``2.5 %``, ``340 %``."""
    percent = 100.0 * share
    return per_cent(percent, ".2g" if abs(percent) < 99.5 else ".0f")


def exact_percent(share: float) -> str:
    """A share in per cent with all of its digits: ``90 %``, ``99.9999 %``. One below 1 is never
    shown as all of it."""
    return f"{(Decimal(repr(float(share))) * 100).normalize():f} %"


def parse_share(text: str) -> float:
    """Return the share that ``0.5`` or ``50%`` stands for; NaN for what is no number."""
    try:
        number = float(text.removesuffix("%").rstrip())
    except ValueError:
        return math.nan
    return number / 100.0 if text.endswith("%") else number


DECIMAL_MARK = "The decimal mark is a point, not a comma."
THOUSANDS = "Commas that separate thousands are not read, and the decimal mark is a point."


def with_point(text: str) -> str | None:
    """Return a number with a decimal comma with a point instead, as ``0.5`` for ``0,5`` and
    ``1.5h`` for ``1,5h``; None for any other text, and for what may have separators of thousands,
    as ``1,000``."""
    if has_thousands(text) or not _COMMA.fullmatch(text):
        return None
    return re.sub(r"(?<=\d),(?=\d)", ".", text)


def has_thousands(text: str) -> bool:
    """Return whether the commas of a number may separate thousands, as in ``1,000`` and
    ``12,500,000``; ``0,125`` has a decimal comma."""
    return _THOUSANDS.fullmatch(text) is not None


def meant_with_point(text: str) -> str:
    """Return what was meant by a number with commas, as a sentence, without a number where that may
    be wrong by a thousand; "" for other text."""
    if has_thousands(text):
        return THOUSANDS
    point = with_point(text)
    return f"Did you mean {point}? {DECIMAL_MARK}" if point else ""


_COMMA = re.compile(r"[^\d.,]*\d+,\d+[^.,]*")
_THOUSANDS = re.compile(r"[^\d.,]*[1-9]\d{0,2}(,\d{3})+(\.\d+)?[^\d.,]*")


def count(number: int, what: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"
