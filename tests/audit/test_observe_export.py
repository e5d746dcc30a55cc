"""``kongming observe export``: files put together, and what anonymised ones no longer hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from kongming.audit.anonymising import Salt, anonymised, apart
from kongming.audit.readings import METADATA_KEY, read_observations, table_of, write_observations
from kongming.cli.main import run
from tests.audit.recordings import APPS, Recording, rows
from tests.audit.sessions import later, reading, session
from tests.audit.synthetic import machines, observe

SECRETS = (
    "ann-laptop",
    "/home/ann",
    "/user.slice",
    "secret-command",
    "i-0abc",
    "us-east-1a",
    "0123456789abcdef",
    "session-of-ann",
    "rack 7",
    "no such file",
)
"""Strings that the files below hold, and none of which an anonymised one may."""


def _file(path: Path, number: int = 1) -> Path:
    name, machine = f"session-of-ann-{number}", f"0123456789abcdef{number}"
    facts = session(machine)["facts"]
    document = session(
        machine,
        facts=facts | {"cgroup": {"path": "/user.slice/ann", "memory_limit_bytes": 1 << 30}},
        instance={"provider": "ec2", "type": "m1.small", "id": "i-0abc", "zone": "us-east-1a"},
        tags={"where": "rack 7", "kind": "blue"},
        programs={
            "sort": {
                "command": ["/home/ann/secret-command"],
                "identity": "abc",
                "unit": "s",
                "better": "lower",
            }
        },
    )
    common: dict[str, Any] = {"session": name, "machine": machine}
    table = table_of(
        [
            reading("chase", 1e-9, **common),
            reading("sort", 2.0, kind="program", position=1, at=later(1), **common),
            reading(
                "sort",
                None,
                kind="program",
                position=3,
                at=later(2),
                reason="exit status 2. The end of its output:\n/home/ann/x: no such file",
                **common,
            ),
            reading(
                "sort",
                None,
                kind="program",
                position=5,
                at=later(3),
                reason="/home/ann/y: no such file",
                **common,
            ),
        ]
    )
    write_observations(path, table, {name: document})
    return path


def _everything(path: Path) -> bytes:
    """The bytes of a file, and all that is compressed in it."""
    table = parquet.read_table(path, partitioning=None)
    return path.read_bytes() + str(table.to_pylist()).encode() + str(table.schema.metadata).encode()


def test_none_of_what_tells_whose_it_is_stays(tmp_path: Path) -> None:
    given = _file(tmp_path / "a.parquet")
    assert all(secret.encode() in _everything(given) for secret in SECRETS)
    out = tmp_path / "out.parquet"
    assert run(["observe", "export", str(given), "--anonymise", "--out", str(out)]) == 0
    text = _everything(out)
    assert [secret for secret in SECRETS if secret.encode() in text] == []
    exported = read_observations([out])
    assert exported.anonymised
    (document,) = exported.sessions.values()
    assert document["facts"]["hardware"]["cpu_model"] == "V 1000"
    assert document["facts"]["cgroup"] == {"memory_limit_bytes": 1 << 30}
    assert document["instance"]["type"] == "m1.small"
    assert document["programs"]["sort"] == {"identity": "abc", "unit": "s", "better": "lower"}
    assert document["tags"] == {}
    original = read_observations([given]).table
    for column in ("at", "position", "kind", "name", "value", "ok"):
        assert exported.table[column].equals(original[column])
    assert [row["reason"] for row in rows(exported, "program")] == [None, "exit status 2", "failed"]
    assert set(exported.table["machine"].to_pylist()) == {document["machine"]}


def test_one_salt_gives_one_machine_one_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = _file(tmp_path / "a.parquet")
    machines = []
    for salt in (("--salt", "x"), ("--salt", "x"), ("--salt", "y"), (), ()):
        out = tmp_path / "out.parquet"
        assert (
            run(
                [
                    "observe",
                    "export",
                    str(given),
                    "--anonymise",
                    "--force",
                    "--out",
                    str(out),
                    *salt,
                ]
            )
            == 0
        )
        machines += read_observations([out]).machines
    assert machines[0] == machines[1]
    assert len(set(machines)) == 4
    capsys.readouterr()


def test_files_are_put_together_and_chosen_tags_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(_file(tmp_path / f"{k}.parquet", k)) for k in (1, 2)]
    out = tmp_path / "out.parquet"
    assert run(["observe", "export", *files, "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["machines"], document["readings"], document["anonymised"]) == (2, 8, False)
    anonymise = ["--anonymise", "--keep-tag", "kind"]
    inplace = ["observe", "export", str(out), *anonymise, "--out", str(out)]
    before = out.read_bytes()
    assert run(inplace) == 2
    assert out.read_bytes() == before
    assert run([*inplace, "--force"]) == 0
    assert [s["tags"] for s in read_observations([out]).sessions.values()] == [{"kind": "blue"}] * 2
    assert run(["observe", "export", files[0], files[0], "--force", "--out", str(out)]) == 2
    assert run(["observe", "export", files[0], "--salt", "x", "--out", str(out)]) == 2
    assert "is an option of --anonymise" in capsys.readouterr().err


def test_recordings_with_one_salt_are_of_one_machine(
    tmp_path: Path, kongming_env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    recording = Recording(tmp_path, kongming_env, APPS)
    refused = recording.run("--for", "0.2s", "--salt", "x")
    assert (refused.returncode, "option of --anonymise" in refused.stderr) == (2, True)
    notes, files = [], []
    for number, salt in enumerate((("--salt", "x"), ("--salt", "x"), ())):
        done = recording.run("--for", "0.2s", "--anonymise", *salt)
        assert done.returncode == 0, done.stderr
        notes.append("has another id" in " ".join(done.stderr.split()))
        files.append(recording.out.rename(tmp_path / f"{number}.parquet"))
    assert notes == [False, False, True]
    machines = [read_observations([file]).machines for file in files]
    assert machines[0] == machines[1] != machines[2]
    assert apart(read_observations(files[:2])) is None
    assert run(["audit", "report", *map(str, files)]) == 0
    assert "3 files are anonymised. If that was done with different salts" in (
        " ".join(capsys.readouterr().err.split())
    )


def test_files_of_which_some_are_anonymised_are_noted(tmp_path: Path) -> None:
    files = []
    for number in range(3):
        observations = observe(machines(1), blocks=2, seed=number)
        if number:
            observations = anonymised(observations, Salt("x"))
        files.append(tmp_path / f"{number}.parquet")
        write_observations(
            files[-1], observations.table, observations.sessions, anonymised=bool(number)
        )
    assert apart(read_observations(files[:1])) is None
    assert apart(read_observations(files[1:])) is None
    for given, start in ((files, "Only 2 files are"), (files[:2], "Only 1 file is")):
        assert str(apart(read_observations(given))).startswith(f"{start} anonymised.")


def test_a_recording_can_be_anonymised_at_once(
    tmp_path: Path, kongming_env: dict[str, str]
) -> None:
    recording = Recording(tmp_path, kongming_env, APPS)
    done = recording.run("--for", "0.5s", "--anonymise", "--tag", "rack=number seven")
    assert done.returncode == 0, done.stderr
    text = _everything(recording.out)
    node = json.loads(parquet.read_schema(recording.out).metadata[METADATA_KEY])
    (document,) = node["sessions"].values()
    for secret in (str(tmp_path), "number seven", "sleep 0.05", "apps.toml"):
        assert secret.encode() not in text
    assert document["programs"]["nap"]["unit"] == "s"
    again = recording.run("--for", "2s", "--anonymise", "--resume")
    assert (again.returncode, "is anonymised" in again.stderr) == (2, True), again.stderr
    assert not recording.journal.exists()
