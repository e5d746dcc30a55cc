"""Which logs a path holds."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from kongming.records.errors import InputError, UnknownNameError
from kongming.spark import reading
from kongming.spark.reading import LoggedApplication, read, read_applications
from tests.spark.event_lines import Event, content, run

EVENTS = run(stages=3, tasks=4)


def rolled(folder: Path, pieces: dict[str, list[Event]], id: str = "app-1") -> Path:
    folder /= f"eventlog_v2_{id}"
    folder.mkdir(parents=True)
    (folder / f"appstatus_{id}").touch()
    for name, events in pieces.items():
        (folder / f"events_{name}").write_bytes(content(events))
        (folder / f".events_{name}.crc").write_bytes(b"crc\0")
    return folder


def thirds() -> tuple[list[Event], list[Event], list[Event]]:
    cuts = [at for at, event in enumerate(EVENTS) if event["Event"].endswith("JobStart")]
    return EVENTS[: cuts[1]], EVENTS[cuts[1] : cuts[2]], EVENTS[cuts[2] :]


@pytest.mark.parametrize("where", ["folder", "its parent", "zip"])
def test_a_rolling_log_in_numeric_order(where: str, tmp_path: Path) -> None:
    first, second, third = thirds()
    pieces = {"10_app-1": third, "8_app-1": first, "9_app-1": second}
    folder = rolled(tmp_path / "logs", pieces)
    path = folder if where == "folder" else folder.parent
    if where == "zip":
        path = tmp_path / "logs.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.iterdir()):
                archive.write(file, f"{folder.name}/{file.name}")
    application = read(path)
    assert len(application.jobs) == 3
    assert application.complete
    # It begins at 8: those before are missing, and nothing in between.
    assert [(finding.kind, finding.count) for finding in application.findings] == [
        ("missing-files", 7)
    ]


def test_gaps_of_a_rolling_log_are_named(tmp_path: Path) -> None:
    first, _, third = thirds()
    application = read(rolled(tmp_path, {"1_app-1": first, "3_app-1": third}))
    messages = {finding.kind: finding.message for finding in application.findings}
    assert "events_2" in messages["missing-files"]
    assert [job.id for job in application.jobs] == [0, 2]
    assert "1 job" in messages["absent-jobs"]


def test_a_compacted_file_replaces_those_up_to_it(tmp_path: Path) -> None:
    first, second, third = thirds()
    header = [event for event in first if "Job" not in event["Event"]][:6]
    pieces = {"1_app-1": first, "2_app-1.compact": header + second, "2_app-1": second}
    application = read(rolled(tmp_path, pieces | {"3_app-1": third}))
    assert [job.id for job in application.jobs] == [1, 2]
    assert {finding.kind for finding in application.findings} == {"compacted", "absent-jobs"}


def test_one_file_of_a_rolling_log(tmp_path: Path) -> None:
    first, second, third = thirds()
    folder = rolled(tmp_path, {"1_app-1": first, "2_app-1": second, "3_app-1": third})
    application = read(folder / "events_2_app-1")
    assert "part-of-log" in {finding.kind for finding in application.findings}
    assert application.id == "app-1"


def test_databricks_hours(tmp_path: Path) -> None:
    first, second, third = thirds()
    folder = tmp_path / "0501-cluster" / "eventlog" / "123"
    folder.mkdir(parents=True)
    (folder / "eventlog-2026-05-01--10-00.gz").write_bytes(gzip.compress(content(first)))
    (folder / "eventlog-2026-05-01--11-00.gz").write_bytes(gzip.compress(content(second)))
    (folder / "eventlog").write_bytes(content(third))
    application = read(tmp_path / "0501-cluster")
    assert len(application.jobs) == 3
    assert application.findings == ()


def test_several_applications_are_listed_and_never_merged(tmp_path: Path) -> None:
    (tmp_path / "app-2").write_bytes(content(run(app="app-2")))
    for attempt in ("1", "2", "10"):
        events = run(app="app-1", attempt=attempt, stages=int(attempt))
        (tmp_path / f"app-1_{attempt}").write_bytes(content(events))
    (tmp_path / "README.txt").write_text("no log\n")
    listed = [(log.id, log.attempt) for log in read_applications(tmp_path)]
    assert listed == [("app-1", "1"), ("app-1", "2"), ("app-1", "10"), ("app-2", None)]
    with pytest.raises(InputError, match=r"2 applications: app-1, app-2.*--app"):
        read(tmp_path)
    with pytest.raises(InputError, match=r"3 attempts: 1, 2, 10.*--attempt"):
        read(tmp_path, "app-1")
    with pytest.raises(UnknownNameError, match=r"'app-3'.*Did you mean app-"):
        read(tmp_path, "app-3")
    with pytest.raises(UnknownNameError, match="attempt named '3'"):
        read(tmp_path, "app-1", "3")
    assert len(read(tmp_path, "app-1", "10").jobs) == 10
    assert len(read(tmp_path, "app-2").jobs) == 2


def test_all_logs_of_a_folder_are_read_with_one_look_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"app-{number}").write_bytes(content(run(app=f"app-{number}")))
    looks: list[Path] = []

    def look(path: Path) -> list[LoggedApplication]:
        looks.append(path)
        return read_applications(path)

    monkeypatch.setattr(reading, "read_applications", look)
    assert [each.id for each in reading.read_all([tmp_path])] == ["app-0", "app-1", "app-2"]
    assert looks == [tmp_path]


def test_a_finished_log_goes_before_the_one_in_progress(tmp_path: Path) -> None:
    (tmp_path / "app-1.inprogress").write_bytes(content(EVENTS[:-20]))
    assert not read(tmp_path).complete
    (tmp_path / "app-1").write_bytes(content(EVENTS))
    assert read(tmp_path).complete


def test_the_start_of_the_application_names_it_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "copy of a log.txt"
    path.write_bytes(content(EVENTS))
    assert [log.id for log in read_applications(path)] == ["app-1"]


@pytest.mark.parametrize("damage", ["empty", "no event", "not zstd"])
def test_the_first_file_of_a_rolling_log_is_damaged(damage: str, tmp_path: Path) -> None:
    first, second, third = thirds()
    folder = rolled(tmp_path, {"1_app-1.zstd": first, "2_app-1": second, "3_app-1": third})
    content_of = {"empty": b"", "no event": b"{\n\n", "not zstd": b"\x28\xb5\x2f\xfd" + b"x" * 40}
    (folder / "events_1_app-1.zstd").write_bytes(content_of[damage])
    for path in (folder, tmp_path):
        application = read(path)
        assert (application.id, application.complete) == ("app-1", True)
        assert [job.id for job in application.jobs] == [1, 2]
        messages = {finding.kind: finding.message for finding in application.findings}
        assert "no-application-start" in messages
        if damage == "no event":
            assert "broken-lines" in messages
        else:
            kind = "empty-files" if damage == "empty" else "damaged-files"
            assert "events_1_app-1.zstd" in messages[kind]


def test_an_empty_file_that_is_still_written(tmp_path: Path) -> None:
    first, second, third = thirds()
    pieces = {"1_app-1": first, "2_app-1": second + third, "3_app-1.inprogress": []}
    assert read(rolled(tmp_path, pieces)).findings == ()


def test_a_rolling_log_without_any_event_is_named(tmp_path: Path) -> None:
    folder = rolled(tmp_path, {"1_app-1": [], "2_app-1": []})
    with pytest.raises(InputError, match="There is no event in events_1_app-1, events_2_app-1"):
        read(folder)


@pytest.mark.parametrize("head", [b"\n", b"\n \n{\n", b'{"Eve\n', b"\xff\xfe\n", b"#\n" * 20])
def test_lines_before_the_first_event(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "file").write_bytes(head + content(EVENTS))
    (tmp_path / "logs" / "notes").write_text("no log\n" * 3000)
    assert [log.id for log in read_applications(tmp_path / "logs")] == ["app-1"]
    application = read(tmp_path / "logs")
    assert len(application.jobs) == 3
    broken = [line for line in head.split(b"\n") if line.strip()]
    counts = {finding.kind: finding.count for finding in application.findings}
    assert counts == ({"broken-lines": len(broken)} if broken else {})


@pytest.mark.parametrize(
    ("name", "data"),
    [("missing", None), ("empty", b""), ("text", b"no log\n"), ("zip", b"PK\5\6" + b"\0" * 18)],
)
def test_what_holds_no_log(name: str, data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match="LOG: ") as raised:
        read(path)
    assert raised.value.hint


def test_a_folder_without_logs(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("{}\n")
    with pytest.raises(InputError, match="holds no event log"):
        read(tmp_path)
