"""job_submit.lua in a Lua process, with simulated jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "daemon/deploy/slurm/job_submit.lua"
NAMES = ("lua5.1", "lua5.3", "lua5.4", "lua")
"""Slurm of Debian 12 is built with 5.1."""
UNSET = {
    "min_nodes": 4294967294,
    "min_cpus": 1,
    "num_tasks": 4294967294,
    "cpus_per_task": 65534,
    "ntasks_per_node": 65534,
    "pn_min_cpus": 65534,
    "pn_min_tmp_disk": 4294967294,
    "contiguous": 65534,
    "time_limit": 4294967294,
    "time_min": 4294967294,
    "het_job_offset": 4294967294,
    "user_id": 1000,
}
"""Slurm's values of what a job did not ask for."""


def interpreters() -> list[str]:
    return [name for name in NAMES if shutil.which(name)]


@dataclass(frozen=True)
class Submitted:
    """A job after its submission; ``log`` has (kind, text)."""

    excluded: str | None = None
    comment: str | None = None
    note: str | None = None
    log: list[tuple[str, str]] = field(default_factory=list)
    clock_s: float = 0.0
    time_min: int | None = None

    @property
    def errors(self) -> list[str]:
        return [text for kind, text in self.log if kind == "error"]

    @property
    def advice(self) -> list[str]:
        """The messages to the user."""
        return [text for kind, text in self.log if kind == "user"]


class Script:
    """``with Script("lua5.1", file) as script: script.submit(comment="...")``"""

    def __init__(self, interpreter: str, rankings: Path) -> None:
        self._process = subprocess.Popen(
            [interpreter, str(Path(__file__).with_name("submit.lua")), str(SCRIPT)],
            env=os.environ | {"KONGMING_SLURM_RANKINGS": str(rankings)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def submit(
        self,
        *,
        now: float | None = None,
        partitions: Mapping[str, Any] | None = None,
        record: Mapping[str, Any] | None = None,
        **job: Any,
    ) -> Submitted:
        """One job through slurm_job_submit, or the change of the job ``record`` through
        slurm_job_modify; always SUCCESS."""
        if partitions is None:
            partitions = {name: {"min_nodes": 0} for name in ("main", "few", "one", "other")}
            partitions["main"]["flag_default"] = 1
        unset = UNSET if record is None else UNSET | {"min_cpus": UNSET["num_tasks"]}
        request = {"job": unset | job, "partitions": partitions, "now": now, "record": record}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(_text(request) + "\n")
        self._process.stdin.flush()
        result: dict[str, str] = {}
        log = []
        for line in self._process.stdout:
            key, _, rest = line.rstrip("\n").partition("\t")
            if key == "done":
                break
            if key == "log":
                kind, _, text = rest.partition("\t")
                log.append((kind, text))
            else:
                result[key] = rest
        else:
            raise AssertionError("the script ended")
        assert result["status"] == "0"
        return Submitted(
            result.get("exc_nodes"),
            result.get("comment"),
            result.get("admin_comment"),
            log,
            float(result["clock"]),
            None if int(result["time_min"]) == UNSET["time_min"] else int(result["time_min"]),
        )


def _text(value: Any) -> str:
    """A value as Lua source on one line."""
    if value is None:
        return "nil"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"[{_text(k)}]={_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        return '"' + "".join(f"\\{byte:03d}" for byte in value.encode("utf-8", "replace")) + '"'
    return repr(value)
