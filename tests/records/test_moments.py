"""Moments in time: one way between texts and seconds, and UTC where no zone is named."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kongming.learning.bracketing import bracket
from kongming.records import moments
from kongming.records.errors import InputError
from kongming.rpc import value_codec
from kongming.store.writing import utc
from tests import builders

ROOT = Path(__file__).resolve().parents[2]
NEW_YEAR = 1767225600.25
TEXTS = (
    "2026-01-01T00:00:00.250Z",
    "2026-01-01T01:00:00.250+01:00",
    "2026-01-01T00:00:00.25",
    "2026-01-01 00:00:00.250",
)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The local time zone of this machine."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("text", TEXTS)
def test_a_time_without_a_zone_is_utc_everywhere(text: str) -> None:
    assert moments.unix(text) == NEW_YEAR
    assert moments.parse(text) == datetime(2026, 1, 1, microsecond=250_000, tzinfo=UTC)
    assert moments.format(moments.parse(text)) == TEXTS[0]
    assert value_codec.unix(value_codec.timestamp(text)) == NEW_YEAR
    assert utc(text) == datetime(2026, 1, 1, microsecond=250_000)
    # Solo runs of the same minute, whichever way their times are written.
    solos = bracket([builders.run("sort", 2.0, started_at=each) for each in (text, TEXTS[0])])
    assert solos is not None
    assert solos.at(NEW_YEAR) == pytest.approx(2.0)


@pytest.mark.usefixtures("zone")
def test_a_datetime_without_a_zone_is_utc_too() -> None:
    assert moments.format(datetime(2026, 1, 1), "seconds") == "2026-01-01T00:00:00Z"
    began = time.time()
    # Written to the millisecond, which is below what the clock says.
    assert began - 0.001 <= moments.unix(moments.now()) <= time.time()
    assert moments.ago(3600.0) < moments.now()


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_milliseconds_survive(milliseconds: int) -> None:
    text = moments.format(milliseconds / 1000)
    # Seconds are a float, which rounds to microseconds; texts are cut to the millisecond.
    assert moments.unix(text) * 1000 == pytest.approx(milliseconds, abs=1.001)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+23:00"])
def test_what_is_no_time_names_its_field(text: str) -> None:
    with pytest.raises(InputError) as refused:
        moments.unix(text, "taken_at")
    assert refused.value.field == "taken_at"


@pytest.mark.parametrize("seconds", [1e300, float("nan"), float("inf")])
def test_seconds_outside_of_the_calendar_are_refused(seconds: float) -> None:
    with pytest.raises(InputError):
        moments.format(seconds)


@pytest.mark.parametrize("seconds", [-62135596800.0, -62135596799.5, 253402300799.5])
def test_the_first_and_the_last_second_of_the_calendar_go_over_the_wire(seconds: float) -> None:
    assert value_codec.unix(value_codec.timestamp(seconds)) == seconds


@pytest.mark.parametrize("seconds", [-62135596800.5, 253402300800.0, -1e11, float("nan")])
def test_seconds_outside_of_the_calendar_do_not_go_over_the_wire(seconds: float) -> None:
    with pytest.raises(InputError, match=r"at: is not a time.*years 1 to 9999"):
        value_codec.timestamp(seconds, "at")


def test_no_other_module_reads_or_writes_texts_as_times() -> None:
    """Each would have to choose a zone where there is none, or how to write it."""
    readers = re.compile(r"\b(fromisoformat|isoformat|strptime|utcfromtimestamp|utcnow)\b")
    modules = {
        str(path.relative_to(ROOT))
        for folder in ("kongming", "daemon", "benchmarks", "examples", "docs")
        for path in (ROOT / folder).rglob("*.py")
        if ".venv" not in path.parts  # of the programs that accuracy is proven on
        and readers.search(path.read_text(encoding="utf-8"))
    }
    assert modules == {"kongming/records/moments.py"}


@given(moment=st.floats(0.0, 4e9) | st.integers(0, 4 * 10**12).map(lambda number: number / 1e3))
@example(moment=1795667613.3499994)
def test_a_moment_is_the_same_text_whether_or_not_it_came_over_the_wire(moment: float) -> None:
    received = value_codec.unix(value_codec.timestamp(moment))
    for digits in ("milliseconds", "microseconds"):
        assert moments.format(received, digits) == moments.format(moment, digits)
