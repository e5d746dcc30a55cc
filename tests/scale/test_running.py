"""Carrying experiments out: order, resuming, and the runners behind one protocol."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kongming.campaigns.cluster_jobs import (
    KubernetesRunner,
    SlurmRunner,
    job_manifest,
    pod_seconds,
    ranked_line,
    timed_script,
)
from kongming.campaigns.experiments import open_runner
from kongming.campaigns.local_machines import (
    PROCS,
    LocalRunner,
    MachineGroups,
)
from kongming.campaigns.other_machines import mixed_machines, on_groups, refuse_other_machines
from kongming.profiling.runs import workspace
from kongming.records import moments
from kongming.records.application import Application, Metric
from kongming.records.errors import InputError, MeasurementError
from kongming.scale.design.experiments import (
    Experiment,
    Measured,
    RunTable,
    fill_template,
    ordered,
    remaining,
)
from kongming.scale.points import Configuration

AT = Configuration(4, 0.1)


def test_templates_leave_other_braces() -> None:
    line = fill_template("job -n {machines} -s {scale} -r {rank} {dir} ${x}", Experiment(AT), 2)
    assert line == "job -n 4 -s 0.1 -r 2 {dir} ${x}"


def test_repeats_are_spread_and_what_is_done_is_left_out() -> None:
    design = [(Configuration(m, 0.1), 3) for m in (1, 2, 4)]
    runs = ordered(design, seed=1)
    assert Counter(run.at for run in runs) == {at: 3 for at, _ in design}
    assert runs == ordered(design, seed=1)
    assert runs != ordered(design, seed=2)
    left = remaining(runs, Counter({AT: 2, Configuration(1, 0.1): 3}))
    assert Counter(run.at for run in left) == {Configuration(2, 0.1): 3, AT: 1}


def test_a_table_of_another_program_is_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    RunTable(path, "aaaa").add(Experiment(AT), Measured(1.5, "process", "now"))
    assert RunTable(path, "aaaa").done == {AT: 1}
    with pytest.raises(InputError, match="another one"):
        RunTable(path, "bbbb")
    path.write_text("machines,seconds\n1,2\n")
    with pytest.raises(InputError, match="table without scale"):
        RunTable(path, "aaaa")


@pytest.mark.parametrize(
    "text", ["notes without a line's end", "a,b\n1,2\nlast", "\udcff\udcfe,x\n"]
)
def test_a_file_that_is_no_table_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    content = text.encode(errors="surrogateescape")
    path.write_bytes(content)
    with pytest.raises(InputError, match="not written by this command"):
        RunTable(path, "aaaa")
    assert path.read_bytes() == content


def test_a_table_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--out: .*there is no folder"):
        RunTable(tmp_path / "none" / "runs.csv", "aaaa")


def test_a_row_that_only_lacks_its_end_is_kept(tmp_path: Path) -> None:
    """As an editor or a spreadsheet leaves a table."""
    path = tmp_path / "runs.csv"
    for started_at in ("2026-03-01T05:00:00Z", moments.now()):
        RunTable(path, "aaaa").add(Experiment(AT), Measured(1.5, "process", started_at))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().removesuffix(b"\n"))
    content = path.read_bytes()
    with pytest.raises(InputError, match="another one"):
        RunTable(path, "bbbb")
    assert path.read_bytes() == content
    for _ in range(2):
        assert RunTable(path, "aaaa").done == {AT: 2}
        assert path.read_bytes() == content + b"\n"
    RunTable(path, "aaaa").add(Experiment(AT), Measured(1.5, "process", moments.now()))
    assert RunTable(path, "aaaa").done == {AT: 3}


def test_a_row_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    RunTable(path, "aaaa").add(Experiment(AT), Measured(1.5, "process", "now"))
    content = path.read_bytes()
    for cut in (content[:20], content + b"2,0."):
        path.write_bytes(cut)
        table = RunTable(path, "aaaa")
        assert table.done == ({AT: 1} if len(cut) > 20 else {})
        table.add(Experiment(AT), Measured(1.5, "process", "now"))
        assert path.read_bytes().splitlines()[0] == content.splitlines()[0]
        assert RunTable(path, "aaaa").done[AT] == len(path.read_bytes().splitlines()) - 1


def test_rows_have_the_columns_of_their_table(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "size,seconds,machines,scale,how,identity,started_at\n9,1,2,1,cgroup,aaaa,now\n"
    )
    RunTable(path, "aaaa").add(Experiment(AT), Measured(1.5, "process", "now"))
    assert path.read_text().splitlines()[-1] == ",1.500000,4,0.1,process,aaaa,now"
    path.write_text("machines,scale,seconds,identity,started_at,how\n4,0.1,1,aaaa\n")
    table = RunTable(path, "aaaa")
    table.add(Experiment(AT), Measured(1.5, "cgroup 0.125", "now"))
    assert table.hows == ["", "cgroup 0.125"]


def test_a_scale_of_many_digits_is_run_once(tmp_path: Path) -> None:
    (experiment,) = ordered([(Configuration(2, 1 / 3), 1)])
    table = RunTable(tmp_path / "runs.csv", "aaaa")
    table.add(experiment, Measured(1.5, "process", "now"))
    assert not remaining([experiment], RunTable(table.path, "aaaa").done)


def test_without_control_groups_machines_are_processes(tmp_path: Path) -> None:
    app = Application("job", "echo {rank}", check="^[0-3]$")
    with LocalRunner(app, tmp_path / "work", root=tmp_path) as runner:
        measured = runner.run(Experiment(AT))
        assert measured.error is None
        assert measured.how == "process"
        assert measured.seconds is not None
        assert runner.reason == "there is no cpu controller that this process can see"
    assert list((tmp_path / "work").iterdir()) == []


def test_runs_on_machines_of_another_share_are_not_mixed() -> None:
    # Tables of earlier versions do not say the share.
    known = ("cgroup", "process", "by hand", "", "cgroup 0.125", "cgroup 0.125")
    refuse_other_machines(known, "local", 0.125)
    refuse_other_machines(known[:4], "local", 0.5)
    with pytest.raises(InputError, match=r"had 0.125 CPUs \(row 5\).*'0.5'.*: 0.125"):
        refuse_other_machines(known, "local", 0.5)
    # As written by hand.
    refuse_other_machines(["cgroup 0.10", "cgroup  1e-1 "], "local", 0.1)
    for cpus in ("0,1", "many"):
        with pytest.raises(InputError, match="row 1, column 'how': has no number of CPUs"):
            refuse_other_machines([f"cgroup {cpus}"], "local", 0.1)


def test_runs_on_machines_of_another_runner_are_not_mixed() -> None:
    for runner in ("slurm", "kubernetes"):
        refuse_other_machines(["", "by hand", runner], runner, 0.125)
        for hows in (["cgroup"], ["process"], ["", "cgroup 0.125"]):
            message = f"--runner: The machines of the table are those of local .*'{runner}'.*local"
            with pytest.raises(InputError, match=message):
                refuse_other_machines(hows, runner, 0.125)
        with pytest.raises(InputError, match=rf"those of {runner} \(row 2\)"):
            refuse_other_machines(["by hand", runner], "local", 0.125)
        # As earlier versions let happen: no runner can go on with it.
        for either in ("local", runner):
            with pytest.raises(
                InputError, match=r"--out: .*mixes the machines of several"
            ) as raised:
                refuse_other_machines(["process", runner], either, 0.125)
            assert "Divide its rows" in str(raised.value.hint)
    assert mixed_machines(["", "process", "slurm"]) is None
    assert mixed_machines(["cgroup", "cgroup 0.5"]) is None
    warning = mixed_machines(["process", "cgroup 0.5", "process"])
    assert warning is not None
    assert "in 1 of its runs they were control groups, in 2 processes" in warning


def test_one_machine_that_fails_fails_the_run(tmp_path: Path) -> None:
    app = Application("job", "test {rank} -ne 2")
    with LocalRunner(app, tmp_path, root=tmp_path) as runner:
        measured = runner.run(Experiment(AT))
    assert measured.seconds is None
    assert "exit status 1" in str(measured.error)


@pytest.mark.parametrize(
    ("command", "timed_out"),
    [
        ("sleep 60", True),
        ("sleep 6{rank}", True),
        # The others wait for one that has failed: more time would not help.
        ("test {rank} -ne 1 && sleep 60", False),
    ],
)
def test_a_run_is_timed_out_where_no_machine_failed_before(
    tmp_path: Path, command: str, timed_out: bool
) -> None:
    app = Application("job", command, timeout_s=1.0)
    with LocalRunner(app, tmp_path, root=tmp_path) as runner:
        measured = runner.run(Experiment(Configuration(2, 1.0)))
    assert measured.seconds is None
    assert measured.error
    assert measured.timed_out == timed_out


def test_scale_runs_are_in_seconds_whatever_the_program_reports(tmp_path: Path) -> None:
    metric = Metric("rate ([0-9.]+)", "ops/s", "higher")
    app = Application("job", "sleep 0.05; echo rate 5000", metric=metric)
    with LocalRunner(app, tmp_path, root=tmp_path) as runner:
        begun = time.perf_counter()
        measured = runner.run(Experiment(Configuration(1, 1.0)))
        around_s = time.perf_counter() - begun
    assert measured.seconds is not None
    # No shorter than the program sleeps, no longer than the call: 5000 would be the rate.
    assert 0.05 <= measured.seconds <= around_s
    assert measured.metric == 5000.0


@pytest.mark.parametrize("command", ["cat {scale}-{rank} {dir}/own", "cat 1-0 1-1 {dir}/own"])
def test_the_inputs_of_all_machines_are_cold(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[set[str], bool]] = []

    def recorded(folder: Path, named: Iterable[Path], *, whole_node: bool) -> str:
        calls.append(({path.name for path in (*named, *folder.iterdir())}, whole_node))
        return "cold"

    monkeypatch.setattr(workspace, "evict", recorded)
    for name in ("1-0", "1-1"):
        (tmp_path / name).touch()
    fields: dict[str, Any] = {"workdir": str(tmp_path), "prepare": "echo x > {dir}/own"}
    app = Application("job", command, cache="cold", **fields)
    with LocalRunner(app, tmp_path / "work", root=tmp_path) as runner:
        assert runner.run(Experiment(Configuration(2, 1.0))).error is None
    assert {name for names, _ in calls for name in names} == {"1-0", "1-1", "own"}
    assert all(whole_node for _, whole_node in calls)
    # Once for all machines: the cache of the node is one.
    assert len(calls) == 1


@pytest.mark.real
def test_a_machine_is_an_eighth_of_a_cpu(tmp_path: Path) -> None:
    with MachineGroups(2, 0.125) as groups:
        if not groups.active:
            pytest.skip(f"no control groups here: {groups.reason}")
        folders = [groups.machine(i).parent for i in range(2)] + [groups.together.parent]
        shares = [_share(folder) for folder in folders]
    assert shares == [0.125, 0.125, 0.25]
    assert not any(folder.exists() for folder in folders)
    app = Application("job", f'echo "entered ${PROCS}"', check="entered .*:.*cgroup.procs")
    with LocalRunner(app, tmp_path) as runner:
        measured = runner.run(Experiment(Configuration(2, 1.0)))
    assert measured.error is None
    assert on_groups(measured.how)
    assert measured.how == "cgroup 0.125"


def _share(folder: Path) -> float:
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
    return int(quota) / int(period)


def _on_path(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Like the real one: runs the last argument, its output to the file of --output.
    _on_path(
        tmp_path,
        "sbatch",
        "for a; do case $a in --output=*) out=${a#--output=};; --nodes=*) n=${a#*=};; esac; done\n"
        'echo "$n" > nodes; sh "$a" > "$out" 2>&1\n',
        monkeypatch,
    )
    _on_path(
        tmp_path,
        "srun",
        "n=${1#--ntasks=}; shift; i=0\n"
        'while [ $i -lt $n ]; do SLURM_PROCID=$i "$@" || exit 1; i=$((i+1)); done\n',
        monkeypatch,
    )
    _on_path(tmp_path, "scontrol", "exit 0\n", monkeypatch)
    app = Application("job", "echo {rank} {scale} >> ranks; sleep 0.02")
    with SlurmRunner(app) as runner:
        measured = runner.run(Experiment(AT))
        assert measured.error is None
        assert measured.seconds is not None
        assert measured.seconds >= 0.08
        assert (tmp_path / "ranks").read_text() == "0 0.1\n1 0.1\n2 0.1\n3 0.1\n"
        assert (tmp_path / "nodes").read_text() == "4\n"
        (tmp_path / "ranks").unlink()
    words = ("sh", "-c", "echo $1 >> ranks", "sh", "it's {rank}")
    with SlurmRunner(Application("job", words)) as runner:
        assert runner.run(Experiment(AT)).error is None
    assert (tmp_path / "ranks").read_text() == "".join(f"it's {rank}\n" for rank in range(4))
    with SlurmRunner(Application("job", "exit 3")) as runner:
        assert "sbatch failed" in str(runner.run(Experiment(AT)).error)
    assert "srun" not in timed_script(Application("job", "mpirun job"), Experiment(AT))
    with SlurmRunner(Application("job", "echo wrong", check="^right$")) as runner:
        measured = runner.run(Experiment(AT))
    assert measured.seconds is None
    assert "check '^right$'" in str(measured.error)


def test_a_job_that_nobody_waits_for_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _on_path(tmp_path, "sbatch", "echo '417;here'; exec sleep 60\n", monkeypatch)
    _on_path(tmp_path, "scancel", f'echo "$1" > {tmp_path}/cancelled\n', monkeypatch)
    _on_path(tmp_path, "scontrol", "exit 0\n", monkeypatch)
    monkeypatch.setattr("kongming.campaigns.cluster_jobs.QUEUE_S", 0.3)
    with SlurmRunner(Application("job", "true")) as runner:
        assert "did not end within" in str(runner.run(Experiment(AT)).error)
    assert (tmp_path / "cancelled").read_text() == "417\n"


@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": "service", "load": "load"}, "--app"),
        ({"command": "job {dir}/input"}, "apps.job.command"),
        ({"setup": "generate {scale} > {dir}/input"}, "apps.job.setup"),
    ],
)
def test_what_a_cluster_cannot_run_is_refused(
    kind: str, changes: dict[str, str], field: str
) -> None:
    app = replace(Application("job", "job {rank}"), **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError) as refused:
        open_runner(kind, app, None, 0.125, "image:1")
    assert refused.value.field == field


def test_a_set_up_is_refused_on_kubernetes_where_it_would_be_left_out() -> None:
    app = Application("job", "job {rank}", setup="generate {scale}", workdir="/srv")
    assert "generate 0.1" in timed_script(app, Experiment(AT))
    with pytest.raises(InputError, match="not run in a pod"):
        open_runner("kubernetes", app, None, 0.125, "image:1")
    manifest = job_manifest(app, Experiment(AT), "x", "image:1")
    assert manifest["spec"]["template"]["spec"]["containers"][0]["workingDir"] == "/srv"


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, condition: str, logs: str = "") -> Path:
    """Put one on the path whose Job is in this condition at the second look."""
    pods = (
        '{"items": [{"status": {"containerStatuses": [{"state": {"terminated": '
        '{"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:30Z"}}}]}}]}'
    )
    conditions = (
        '[{"type": "Suspended", "status": "False"}, '
        f'{{"type": "{condition}", "status": "True", "message": "It is over."}}]'
    )
    calls = folder / "calls"
    _on_path(
        folder,
        "kubectl",
        f'echo "$1 $2" >> {calls}; looks=$(grep -c "get job" {calls})\n'
        'case "$looks $1 $2" in\n'
        "1*job) echo '{\"status\": {}}';;\n"
        f'*job) echo \'{{"status": {{"conditions": {conditions}}}}}\';;\n'
        f"*pods) echo '{pods}';;\n"
        f"*logs*) echo '{logs}';;\nesac; cat > /dev/null\n",
        monkeypatch,
    )
    monkeypatch.setattr("kongming.campaigns.cluster_jobs._POLL_S", 0.01)
    return calls


def test_a_job_that_fails_on_kubernetes_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = kubectl(tmp_path, monkeypatch, "Failed", "no such input")
    with KubernetesRunner(Application("job", "job"), "image:1") as runner:
        measured = runner.run(Experiment(AT))
    assert measured.seconds is None
    assert "It is over." in str(measured.error)
    assert "no such input" in str(measured.error)
    assert calls.read_text().splitlines()[-2:] == ["delete job", "get --raw"]


def test_a_control_plane_that_is_away_for_a_moment_ends_no_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, "Complete")
    answers = (tmp_path / "kubectl").rename(tmp_path / "answers")
    _on_path(
        tmp_path,
        "kubectl",
        f'[ "$1 $2" = "get job" ] && [ ! -e {tmp_path}/away ] && touch {tmp_path}/away && exit 1\n'
        f'exec {answers} "$@"\n',
        monkeypatch,
    )
    with KubernetesRunner(Application("job", "job"), "image:1") as runner:
        assert runner.run(Experiment(AT)).seconds == 90.0


def test_why_a_job_failed_is_said_of_pods_that_never_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, "Failed")
    answers = (tmp_path / "kubectl").rename(tmp_path / "answers")
    script = f'[ "$1" = logs ] && exit 1\nexec {answers} "$@"\n'
    _on_path(tmp_path, "kubectl", script, monkeypatch)
    with KubernetesRunner(Application("job", "job"), "image:1") as runner:
        assert "It is over." in str(runner.run(Experiment(AT)).error)


@pytest.mark.parametrize("program", ["sbatch", "kubectl"])
def test_a_cluster_that_does_not_answer_is_no_failed_run(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row would say that the program fails there."""
    monkeypatch.chdir(tmp_path)
    for name in (program, "scontrol"):
        _on_path(tmp_path, name, "echo 'no route to host' >&2; exit 1\n", monkeypatch)
    app = Application("job", "job")
    runner = SlurmRunner(app) if program == "sbatch" else KubernetesRunner(app, "image:1")
    with runner, pytest.raises(MeasurementError, match="does not answer") as refused:
        runner.run(Experiment(AT))
    assert "no route to host" in refused.value.message
    assert "goes on" in str(refused.value.hint)


@pytest.mark.parametrize(
    "command", ["echo part-{rank}_of_4 {rank}0", ("echo", "part-{rank}_of_4", "{rank}0")]
)
def test_a_machine_has_its_number_within_a_word(command: str | tuple[str, ...]) -> None:
    line = ranked_line(command, "SLURM_PROCID")
    printed = subprocess.check_output(line, shell=True, env={"SLURM_PROCID": "3"}, text=True)
    assert printed == "part-3_of_4 30\n"


def test_a_table_behind_a_link_is_written_where_the_link_leads(tmp_path: Path) -> None:
    link = tmp_path / "runs.csv"
    link.symlink_to(tmp_path / "elsewhere.csv")
    RunTable(link, "aaaa").add(Experiment(AT), Measured(1.5, "process", "now"))
    assert link.is_symlink()
    assert (tmp_path / "elsewhere.csv").read_text().startswith("machines,")


def test_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = kubectl(tmp_path, monkeypatch, "Complete")
    app = Application("My_Job", "job {rank}", env={"A": "b"})
    with KubernetesRunner(app, "image:1") as runner:
        measured = runner.run(Experiment(AT))
    assert measured.seconds == 90.0
    looks = ["get job", "get job", "get pods"]
    assert calls.read_text().splitlines() == ["apply -f", *looks, "delete job"]
    manifest = job_manifest(app, Experiment(AT), "x", "image:1")
    assert manifest["spec"]["completions"] == 4
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert manifest["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["command"][-1] == "job ${JOB_COMPLETION_INDEX}"
    words = Application("job", ("job", "--rank={rank}", "it's"))
    manifest = job_manifest(words, Experiment(AT), "x", "image:1")
    line = manifest["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    environment = {"JOB_COMPLETION_INDEX": "2"}
    printed = subprocess.check_output(f"job() {{ echo $*; }}; {line}", shell=True, env=environment)
    assert printed == b"--rank=2 it's\n"
    assert pod_seconds({"items": []}) is None
