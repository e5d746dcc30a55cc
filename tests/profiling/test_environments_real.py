"""Environments on this machine: what they do to programs, and that nothing is left of them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kongming.probes.binary import locate
from kongming.probes.node import node_facts
from kongming.probes.suite import load_suite
from kongming.profiling.environments.environment import Environment
from kongming.profiling.environments.limits import Limits, reasons, sweep_leftovers
from kongming.profiling.environments.runs import measure_environments
from kongming.profiling.environments.tasks import tasks
from kongming.profiling.events import Doing, Dropped, Event, Measured
from kongming.profiling.runs.execution import Execution, Iteration
from kongming.records.application import Application, Metric
from kongming.records.errors import InputError
from kongming.records.run import Run
from tests.conftest import ROOT
from tests.profiling.processes import eventually

pytestmark = pytest.mark.real

PROGRAMS = ROOT / "tests/campaigns/programs"
HALF = Environment("quota-0.5", "quota", {"cpu_quota": 0.5})
IDLE = Environment("idle", "idle")
SLOW_DISK = Environment(
    "io-32M", "io", {"read_bytes_per_s": 32 << 20, "write_bytes_per_s": 32 << 20}
)
TIGHT = Environment("memory-tight", "memory", {"of_need": 1.25, "plus_bytes": 16 << 20})
COUNT = (sys.executable, "-c", "x = 0\nfor i in range(5_000_000): x += i")


@pytest.fixture(scope="module")
def permitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return reasons(node_facts(), tmp_path_factory.mktemp("io"))


def need(permitted: dict[str, str | None], kind: str) -> None:
    if permitted[kind] is not None:
        pytest.skip(f"{kind}: {permitted[kind]}")


def left() -> list[Path]:
    """Groups of any campaign that this process may see."""
    return [
        path
        for base, folders, _ in os.walk("/sys/fs/cgroup")
        for path in (Path(base) / name for name in folders)
        if path.name.startswith("kongming-")
    ]


def of(pid: int) -> list[Path]:
    return [path for path in left() if path.name.startswith(f"kongming-{pid}-")]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert of(os.getpid()) == []


def run(command: str | tuple[str, ...], procs: tuple[Path, ...] = ()) -> Iteration:
    with Execution(command, cpus=(min(node_facts().cpus),), cgroup_procs=procs) as running:
        iteration = running.result()
    assert iteration.ok, running.output.text()
    return iteration


def seconds(iteration: Iteration) -> float:
    return (iteration.end_ns - iteration.start_ns) / 1e9


@pytest.mark.alone
def test_half_a_cpu_makes_a_program_about_twice_as_slow(
    permitted: dict[str, str | None], tmp_path: Path
) -> None:
    need(permitted, "quota")
    with Limits(HALF, tmp_path) as limits:
        halved = run(COUNT, limits.app_procs)
        throttled = limits.throttled()["nr_throttled"]
    # Over its own CPU time: an earlier run may have had a slower CPU.
    slowdown = seconds(halved) / halved.usage.cpu_s
    assert slowdown > 1.25
    # Where others leave it less than half a CPU anyway, there is nothing to take away.
    assert throttled > 0 or slowdown >= 2.0


@pytest.mark.alone
@pytest.mark.parametrize("direction", ["read", "write"])
def test_a_throttled_disk_is_slower_to_read_and_to_write(
    permitted: dict[str, str | None], tmp_path: Path, direction: str
) -> None:
    need(permitted, "io")
    file = tmp_path / "data"
    command = {
        "read": f"dd if={file} of=/dev/null bs=1M iflag=direct",
        "write": f"dd if=/dev/zero of={file} bs=1M count=24 oflag=direct conv=notrunc",
    }[direction]
    file.write_bytes(os.urandom(24 << 20))
    os.sync()
    free = min(seconds(run(command)) for _ in range(2))
    if free >= 0.25:
        pytest.skip(f"24 MB take {free:.2f} s on this disk, and 0.75 s at the limit")
    with Limits(SLOW_DISK, tmp_path) as limits:
        throttled = seconds(run(command, limits.app_procs))
    assert throttled / free > 1.5
    # No disk is faster than its limit.
    assert throttled > 0.5


def test_a_cpuset_moves_the_program_to_its_cpu(
    permitted: dict[str, str | None], tmp_path: Path
) -> None:
    need(permitted, "cpuset")
    cpu = max(node_facts().cpus)
    with Limits(Environment("there", "cpuset", {"cpu": cpu}), tmp_path) as limits:
        command = "grep Cpus_allowed_list /proc/self/status"
        with Execution(command, cgroup_procs=limits.app_procs) as running:
            running.result()
        assert running.output.text().split()[-1] == str(cpu)


def test_a_memory_limit_leaves_no_room_for_the_page_cache_but_for_the_program(
    permitted: dict[str, str | None], tmp_path: Path, hasty: Path
) -> None:
    need(permitted, "memory")
    need(permitted, "io")  # without a disk nothing is read
    app = Application(
        name="twice",
        setup="dd if=/dev/urandom of={dir}/data bs=1M count=64",
        command="cat {dir}/data {dir}/data | tail -c 20000000 | wc -c",
        check="20000000",
    )
    planned = [IDLE, TIGHT, Environment("idle-again", "idle")]
    in_this_order = next(
        seed
        for seed in itertools.count()
        if [task.environment for task in tasks(("twice",), planned, repeats=1, seed=seed)]
        == planned
    )
    ample, tight, again = campaign(hasty, {"twice": app}, planned, seed=in_this_order)
    assert max(ample.usage.read_bytes, again.usage.read_bytes) < 8 << 20
    assert tight.usage.read_bytes > 96 << 20
    limit = tight.config["memory_limit_bytes"]
    # Only tail holds more than a few pages, and that is 20 MB.
    assert 1.25 * 20e6 + (16 << 20) <= limit < 64 << 20
    assert tight.before is not None
    assert tight.before.passive["memory_limit_bytes"] == limit


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hasty surrogates, with an I/O folder of their own."""
    monkeypatch.setenv("REAL_MICROBENCH", str(locate()))
    monkeypatch.setenv("KONGMING_MICROBENCH", str(PROGRAMS / "hasty-microbench"))
    folder = tmp_path / "io"
    folder.mkdir()
    return folder


def events(
    folder: Path,
    apps: dict[str, Application],
    environments: list[Environment],
    **options: object,
) -> Iterator[Event]:
    node = node_facts()
    placement = "cross-core" if len(node.cpus) > 1 else "same-core"
    return measure_environments(
        apps,
        environments,
        node=node,
        suite=load_suite(node, folder),
        work_dir=folder,
        io_dir=folder,
        **({"placement": placement, "repeats": 1} | options),  # type: ignore[arg-type]
    )


def campaign(
    folder: Path,
    apps: dict[str, Application],
    environments: list[Environment],
    **options: object,
) -> list[Run]:
    """The runs of a whole campaign, in the order of ``environments`` where each has one."""
    runs = [e for e in events(folder, apps, environments, **options) if isinstance(e, Run)]
    names = [environment.name for environment in environments]
    return sorted(runs, key=lambda run: names.index(run.config["environment"]))


@pytest.mark.parametrize(
    ("repeats", "done", "left"),
    [
        pytest.param(1, {0, 2}, [1, 3]),
        pytest.param(2, {0, 1, 2, 5, 7}, [3, 4, 6], marks=pytest.mark.thorough),
    ],
)
def test_a_campaign_yields_runs_between_fingerprints_and_resumes(
    permitted: dict[str, str | None], hasty: Path, repeats: int, done: set[int], left: list[int]
) -> None:
    need(permitted, "quota")
    apps = {"a": Application(name="a", command="true"), "b": Application(name="b", command="true")}
    planned = [IDLE, HALF, Environment("absent", "io", unavailable="no disk.")]
    seen = list(events(hasty, apps, planned, repeats=repeats, seed=3, campaign="c"))
    runs = [event for event in seen if isinstance(event, Run)]
    plan = tasks(("a", "b"), planned, repeats=repeats, seed=3)
    assert [(r.step, r.app, r.config["environment"]) for r in runs] == [
        (t.step, t.app, t.environment.name) for t in plan
    ]
    for each in runs:
        assert each.ok, each.error
        assert (each.kind, each.campaign) == ("environment", "c")
        assert each.config["synthetic"] is False
        assert each.fingerprint is each.before
        assert each.before is not None
        assert each.after is not None
        assert each.before.suite == each.after.suite == "quick"
        quota = each.before.passive.get("cpu_quota")
        assert (quota == 0.5) == (each.config["kind"] == "quota")
        assert Run.from_dict(json.loads(json.dumps(each.to_dict()))) == each
    assert {type(event) for event in seen} == {Doing, Measured, Run}

    rest = campaign(hasty, apps, planned, repeats=repeats, seed=3, done=frozenset(done))
    assert sorted(run.step for run in rest) == left
    assert list(events(hasty, apps, planned, done=frozenset(range(4)))) == []


def test_programs_and_inducers_run_next_to_what_is_measured(hasty: Path) -> None:
    loaded = f"{sys.executable} {PROGRAMS}/loaded.py {hasty}"
    metric = Metric(pattern=r"loads (\d+)", unit="loads")
    command = f"if {loaded}; then echo loads 2; else echo loads 1; fi"
    apps = {
        "watch": Application(name="watch", command=command, metric=metric),
        "loops": Application(name="loops", command=f"echo >> {hasty}/looped; sleep 0.02"),
    }
    level = {"surrogate": "iobench.read.4M", "family": "read", "intensity": 0.5}
    planned = [
        Environment("mix", "mix", {"programs": ["loops"], "seat": "same"}),
        Environment("synthetic-1", "mix", {"levels": [level], "seat": "same"}, synthetic=True),
    ]
    runs = {(r.config["environment"], r.app): r for r in campaign(hasty, apps, planned)}
    mixed, induced = runs["mix", "watch"], runs["synthetic-1", "watch"]
    assert (mixed.metric, induced.metric) == (1.0, 2.0)
    assert (mixed.config["synthetic"], induced.config["synthetic"]) == (False, True)
    assert induced.levels == mixed.neighbours == ()
    assert len((hasty / "looped").read_text()) > len(planned)
    with pytest.raises(InputError, match="programs that were not given"):
        list(events(hasty, {"watch": apps["watch"]}, planned))


def test_failures_are_kept_with_their_reason_and_the_rest_goes_on(hasty: Path) -> None:
    apps = {
        "bad": Application(name="bad", command="echo no luck; exit 3"),
        "good": Application(name="good", command="true"),
        "unset": Application(name="unset", setup="exit 4", command="true"),
    }
    mix = Environment("mix", "mix", {"programs": ["bad"], "seat": "same"})
    nowhere = Environment("cpuset-none", "cpuset", {"cpu": 4095})
    planned = [IDLE, mix, nowhere]
    seen = list(events(hasty, apps, planned, seed=1))
    runs = [event for event in seen if isinstance(event, Run)]
    dropped = [event.app for event in seen if isinstance(event, Dropped)]
    assert sorted(dropped) == ["bad", "unset"]
    for each in runs:
        where = each.config["environment"]
        assert each.ok == (each.app == "good" and where == "idle")
        if where == "mix" and each.app == "good":
            assert "no luck" in str(each.error)
        if where == "cpuset-none" and each.app == "good":
            assert "cpuset" in str(each.error)
    assert sum(run.app == "good" for run in runs) == len(planned)
    # No step of a program that was never set up is used up.
    assert not any(run.app == "unset" for run in runs)


SCRIPT = """
import sys
from pathlib import Path
from tests.profiling.test_environments_real import IDLE, HALF, SLOW_DISK, TIGHT, events
from kongming.records.application import Application

app = Application(name="long", command="echo > {dir}/../started; sleep 60; true")
kinds = {"quota": HALF, "io": SLOW_DISK, "memory": TIGHT}
list(events(Path(sys.argv[1]), {"long": app}, [kinds[sys.argv[2]]]))
"""
QUICKLY = {("io", signal.SIGINT), ("quota", signal.SIGKILL), ("memory", signal.SIGKILL)}
"""Each kind once, and each end; the others are thorough tests."""


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        pytest.param(kind, how, marks=() if (kind, how) in QUICKLY else pytest.mark.thorough)
        for kind in ("quota", "io", "memory")
        for how in (signal.SIGINT, signal.SIGKILL)
    ],
)
def test_an_interrupted_campaign_leaves_no_group(
    permitted: dict[str, str | None], hasty: Path, kind: str, how: signal.Signals
) -> None:
    need(permitted, kind)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(hasty), kind],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert eventually((hasty / "started").exists, 30.0), process.communicate()
        groups = of(process.pid)
        assert len(groups) == 1
        process.send_signal(how)
        # The program itself would sleep for longer.
        _, err = process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    if how == signal.SIGINT:
        assert b"KeyboardInterrupt" in err
        assert process.returncode == -signal.SIGINT
    else:
        # The program ends with its supervisor; the next start finds the group empty, which may be
        # that of another campaign on this machine.
        assert of(process.pid) in (groups, [])
        assert eventually(lambda: _is_empty(groups[0]))
        sweep_leftovers()
    assert of(process.pid) == []


def _is_empty(group: Path) -> bool:
    """Whether no process is in the group, or it is gone."""
    try:
        return (group / "cgroup.procs").read_text() == ""
    except FileNotFoundError:
        return True


def test_closing_it_in_the_middle_reaps_everything(
    permitted: dict[str, str | None], hasty: Path
) -> None:
    need(permitted, "quota")
    apps = {"a": Application(name="a", command="sleep 0.01")}
    both = Environment("mix", "mix", {"programs": ["a"], "seat": "same"})
    for environment in (HALF, both):
        with closing(events(hasty, apps, [environment], repeats=3)) as going:  # type: ignore[type-var]
            assert any(isinstance(event, Run) for event in going)
            assert of(os.getpid()) != []
        assert of(os.getpid()) == []
        assert list(hasty.glob("kongming-app-*")) == []
