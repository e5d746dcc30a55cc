"""The bridge with a simulated Slurm and server: files, commands and failures."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kongming_slurm import bridge_config as config
from kongming_slurm import ranking_file
from kongming_slurm.bridge import Bridge, least_slowdowns, slowdowns
from kongming_slurm.policy import excluded
from kongming_slurm.ranking_file import NEVER, RunTimes
from kongming_slurm.slurm_commands import OWN_CHANGE, Slurm, node_sizes

from kongming import settings as declared
from kongming.records.answers import (
    ApplicationReport,
    Assignment,
    Basis,
    Forecast,
    NodeReport,
    RankedNode,
    Ranking,
    Realised,
)
from kongming.records.errors import InputError, ServiceError, UnavailableError
from kongming.records.fingerprint import NodeFacts
from kongming.records.prediction import Interval
from kongming.records.questions import Question, RankQuestion

NODES = """n1|1|idle|main*|infinite
n2|1|mixed|main*|infinite
n3|3001|down*|main*|infinite
n1|1|idle|fast|2:00:00
"""
SIZE = "CPUAlloc=0 CPUEfctv=4 CPUTot=4 OS=Linux 6.1 RealMemory=1000 State=IDLE ThreadsPerCore=1"
SIZES = "".join(f"NodeName=n{n} Arch=x86_64 {SIZE} Weight=1\n" for n in (1, 2, 3))
NOTE = "kongming:app=xz,limit=1.5,nodes=1,cpus=1,memory=0,total=1,own="


def _base(id_: str) -> str:
    return id_.partition("_")[0]


class Commands:
    """Slurm's commands. ``pending`` are (id, waited, excluded, note), ``updates`` what was set."""

    def __init__(self) -> None:
        self.pending: list[tuple[str, int, str, str]] = []
        self.running: list[str] = []
        self.updates: list[str] = []
        self.away = False
        self.times: dict[str, tuple[str, str]] = {}
        """TimeLimit and MinTime by id."""
        self.limited: list[tuple[str, str]] = []
        """(id, note) of running jobs."""
        self.comments: dict[str, str] = {}
        self.calls: list[str] = []
        self.partitions: dict[str, str] = {}
        self.users: dict[str, int] = {}
        self.prolog, self.reservations = "/etc/slurm/restore-limit.sh", "No reservations"

    def __call__(self, words: Sequence[str]) -> str:
        if self.away:
            raise UnavailableError("scontrol did not answer.")
        line = " ".join(words)
        self.calls.append(line)
        if words[0] == "sinfo":
            return NODES
        if words[:2] == ["scontrol", "update"]:
            if "ExcNodeList=" in line:
                assert line.endswith(f" {OWN_CHANGE}")
            self.updates.append(
                line.removeprefix("scontrol update ").removesuffix(f" {OWN_CHANGE}")
            )
            return ""
        if words[-1] == "reservation":
            return self.reservations
        if words[-1] == "node":
            return SIZES
        if words[0] == "scontrol":
            return f"ClusterName             = north\nPrologSlurmctld         = {self.prolog}\n"
        if words[-1] == "JobArrayID:|,comment:":
            ids = [job[0] for job in (*self.pending, *self.limited)]
            return "".join(f"{id_}|{self.comments.get(_base(id_), '(null)')}\n" for id_ in ids)
        if "PENDING" in line and "-O" in line:
            return "".join(
                f"{_base(id_)}|{id_}|{self.users.get(id_, 1000)}|{s}"
                f"|{self.partitions.get(id_, 'main')}|{self._times(id_)}|{n}\n"
                for id_, s, _, n in self.pending
            )
        if "MinTime" in line:
            return "".join(f"{id_}|{self._times(id_)}|{n}\n" for id_, n in self.limited)
        if "-j" in words:
            return self.comments.get(words[words.index("-j") + 1], "(null)")
        if "PENDING" in line:
            return "".join(f"{_base(id_)}|{hosts}\n" for id_, _, hosts, _ in self.pending)
        return "".join(f"{id_}|0\n" for id_ in self.running)

    def _times(self, id_: str) -> str:
        return "|".join(self.times.get(id_, ("8:00", "0:00")))


class Server:
    """Predictions by application and node, general slowdowns, assignments."""

    def __init__(self) -> None:
        self.slowdowns: dict[str, dict[str, float]] = {"xz": {"n1": 2.0, "n2": 1.0}}
        self.general = {"n1": 1.6, "n2": 1.0}
        self.held: list[Assignment] = []
        self.released: list[str] = []
        self.away = False
        self.rank_questions: list[RankQuestion] = []
        self.realised: dict[str, Realised] = {}
        self.bases: dict[str, Basis] = {}
        self.solo_s = 100.0

    def __getattribute__(self, name: str) -> Any:
        if name in ("rank", "nodes", "applications", "assignments", "release") and self.away:
            raise UnavailableError("The server is away.")
        return super().__getattribute__(name)

    def rank(self, question: RankQuestion) -> Ranking:
        self.rank_questions.append(question)
        nodes = tuple(ranked(name, value) for name, value in self.slowdowns[question.app].items())
        return Ranking(nodes, len(nodes), {}, self.bases.get(question.app, "model"))

    def predict(self, questions: Sequence[Question]) -> tuple[Forecast, ...]:
        return tuple(
            Forecast(
                app=question.app,
                node_id=question.node,
                domain=0,
                placement="cross-core",
                basis="model",
                slowdown=Interval(1.0, 1.0, 1.0),
                solo_s=self.solo_s,
            )
            for question in questions
        )

    def nodes(self) -> tuple[NodeReport, ...]:
        return tuple(
            NodeReport(replace(FACTS, id=name, name=name), "ready", general_slowdown=value)
            for name, value in self.general.items()
        )

    def applications(self) -> tuple[ApplicationReport, ...]:
        known = [
            ApplicationReport(
                name, "", {}, trained=("cross-core",), realised=self.realised.get(name)
            )
            for name in self.slowdowns
        ]
        return (*known, ApplicationReport("untrained", "", {}))

    def assignments(
        self, node: str | None = None, *, ended: bool = False
    ) -> tuple[Assignment, ...]:
        return tuple(self.held)

    def release(self, assignment_id: str, *, ended_at: float | None = None) -> Assignment:
        self.released.append(assignment_id)
        return self.held[0]

    def close(self) -> None:
        pass


FACTS = NodeFacts(
    id="n",
    name="n",
    architecture="x86_64",
    cpu_vendor="",
    cpu_model="",
    cpus=(0,),
    cores={},
    sockets={},
    l1d_bytes=0,
    l2_bytes=0,
    llc_bytes=0,
    llc_cpus=((0,),),
    memory_bytes=1,
    kernel="",
    hypervisor=None,
    huge_pages="",
)


def ranked(name: str, slowdown: float, worst: float = 1.0) -> RankedNode:
    interval = Interval(slowdown, slowdown, slowdown, 0.9)
    return RankedNode(name, name, 0, 0.0, interval, worst_resident_slowdown=worst)


def test_at_least_so_much_does_not_keep_a_limit() -> None:
    known = ranked("n1", 1.1, worst=1.2)
    harmful = replace(known, name="n2", worst_resident_at_least=True)
    open_ = replace(known, name="n3", slowdown=replace(known.slowdown, at_least=True))
    nodes, names = (known, harmful, open_), ("n1", "n2", "n3", "n4")
    assert slowdowns(nodes, names, 1.5) == (1.1, 1.1, 1.1, None)
    assert least_slowdowns(nodes, names, 1.5) == (1, 2)
    assert slowdowns(nodes, names, 0.0) == (1.1, 1.1, 1.1, None)
    assert least_slowdowns(nodes, names, 0.0) == (2,)


def test_nodes_whose_residents_nobody_profiled_keep_their_order() -> None:
    """They come after those that keep the limit, and before those that are known not to."""
    unknown = replace(ranked("a.site", 3.0, worst=1.1), worst_resident_at_least=True)
    better = replace(unknown, name="b.site", slowdown=ranked("b", 1.2).slowdown)
    harmed, quiet = ranked("c.site", 1.1, worst=2.0), ranked("d.site", 1.4)
    nodes, names = (unknown, better, harmed, quiet), ("a", "b", "c", "d")

    slow, least = slowdowns(nodes, names, 1.5), least_slowdowns(nodes, names, 1.5)

    def remaining(count: int) -> set[int]:
        out = excluded(range(4), slow, [1] * 4, limit=1.5, nodes=count, total=1, least=least)
        return set(range(4)) - (out or set())

    assert [remaining(count) for count in (1, 2, 3)] == [{3}, {3, 1}, {3, 1, 0}]


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def bridge(tmp_path: Path, commands: Commands, server: Server, clock: list[float]) -> Bridge:
    settings = declared.parse(
        config.Settings,
        {
            "rankings": {"file": str(tmp_path / "rankings"), "refresh_s": 15.0},
            "pending": {"longest_s": 600.0, "most_changes": 3},
        },
    )
    return Bridge(settings, lambda: server, Slurm(command=commands), now=lambda: clock[0])


def test_the_file_holds_the_answers_of_the_server(
    bridge: Bridge, tmp_path: Path, server: Server
) -> None:
    assert 1.0 < bridge.step() <= 15.0
    rankings = ranking_file.parse((tmp_path / "rankings").read_text())
    assert rankings.nodes == ("n1", "n2", "n3")
    assert rankings.up == (True, True, False)
    assert rankings.cpus == (4, 4, 4)
    assert rankings.memory_mb == (1000, 1000, 1000)
    assert rankings.threads == (1, 1, 1)
    assert rankings.partitions == {"main": (0, 1, 2), "fast": (0,)}
    assert rankings.apps == {"xz": (2.0, 1.0, None)}
    assert rankings.written_at == 1000.0
    # A stale fingerprint is no reason to exclude a node.
    assert server.rank_questions[0].stale_policy == "refuse"


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("CPUEfctv=8 CPUTot=8 RealMemory=16000 ThreadsPerCore=2", (8, 16000, 2)),
        (
            "CPUEfctv=6 CPUTot=8 OS=Linux 6.1 RealMemory=16000 CoreSpecCount=1 CPUSpecList=6-7 "
            "MemSpecLimit=4000 State=IDLE ThreadsPerCore=2",
            (6, 12000, 2),
        ),
        # As Slurm before 22.05 prints it.
        ("CPUTot=8 RealMemory=16000 CoreSpecCount=1 ThreadsPerCore=2", (6, 16000, 2)),
        ("CPUEfctv=8 RealMemory=10 MemSpecLimit=20", (8, 0, 0)),
        ("CPUEfctv=8 RealMemory=16000 Reason=set MemSpecLimit=1 or so [root]", (8, 16000, 0)),
        ("State=FUTURE", (0, 0, 0)),
    ],
)
def test_what_is_reserved_for_the_system_is_not_counted(
    line: str, size: tuple[int, int, int]
) -> None:
    assert node_sizes(f"NodeName=n1 Arch=x86_64 {line}\n\n")["n1"] == size


def test_a_node_that_slurm_shows_no_size_of_holds_no_job() -> None:
    texts = {"sinfo": NODES, "scontrol": SIZES.replace("NodeName=n2", "NodeName=n9")}
    nodes = Slurm(command=lambda words: texts[words[0]]).nodes()
    assert (nodes.cpus, nodes.memory_mb) == ((4, 0, 4), (1000, 0, 1000))


def test_an_application_without_a_model_is_left_out(
    tmp_path: Path, commands: Commands, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.slowdowns["typo"] = {"n1": 2.0, "n2": 1.0}
    server.bases["typo"] = "node-only"
    document = {"rankings": {"file": str(tmp_path / "rankings"), "apps": ["typo", "xz"]}}
    settings = declared.parse(config.Settings, document)
    bridge = Bridge(settings, lambda: server, Slurm(command=commands), now=lambda: 1000.0)
    for _ in range(2):
        bridge.step()
        rankings = ranking_file.parse((tmp_path / "rankings").read_text())
        assert list(rankings.apps) == ["xz"]
    assert [record for record in caplog.messages if "typo" in record] == [
        "models: the server has no model of typo: its jobs are left alone"
    ]
    assert bridge.failing
    server.bases.clear()
    bridge.step()
    rankings = ranking_file.parse((tmp_path / "rankings").read_text())
    assert list(rankings.apps) == ["typo", "xz"]
    assert not bridge.failing


def test_weights_follow_and_are_set_once(
    bridge: Bridge, commands: Commands, server: Server
) -> None:
    bridge.step()
    assert commands.updates == ["NodeName=n1 Weight=6"]
    commands.updates.clear()
    server.general["n1"] = 1.0
    bridge.step()
    assert commands.updates == []


def test_the_former_id_of_a_node_does_not_hide_its_name(
    bridge: Bridge, server: Server, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = server.nodes()
    former = replace(present[0], facts=replace(FACTS, id="former", name="n1"), state="silent")
    monkeypatch.setattr(server, "nodes", lambda: (*present, former))
    bridge.step()
    assert commands.updates == ["NodeName=n1 Weight=6"]
    # Which of two that are there is meant, nobody knows.
    other = replace(former, state="suspect")
    monkeypatch.setattr(server, "nodes", lambda: (*present, other))
    commands.updates.clear()
    bridge.step()
    assert commands.updates == []


def test_pending_jobs_follow_the_rankings(bridge: Bridge, commands: Commands) -> None:
    commands.pending = [
        ("1", 10, "(null)", NOTE),
        ("2", 10, "n1", NOTE),
        ("3", 10, "n[1-2]", f"{NOTE}n2"),
        ("4", 10, "(null)", "of the operator"),
        ("5", 700, "n1", NOTE),
        ("6_[1-9]", 10, "n2", f"of the operator {NOTE}n3"),
    ]
    bridge.step()
    changes = [line for line in commands.updates if line.startswith("JobId")]
    # The job that waits longest may have any node; 3 has no place but n1, which remains.
    assert changes == [
        "JobId=5 ExcNodeList=",
        "JobId=1 ExcNodeList=n1",
        "JobId=3 ExcNodeList=n2",
    ]
    # The rest come with the next refresh.
    commands.pending = commands.pending[-1:]
    commands.updates.clear()
    bridge.step()
    assert "JobId=6_[1-9] ExcNodeList=n3,n1" in commands.updates


def test_a_job_that_its_user_has_changed_is_left_alone(
    bridge: Bridge, commands: Commands, server: Server
) -> None:
    commands.pending = [("1", 10, "n2", NOTE), ("2", 10, "(null)", NOTE), ("3", 10, ",", NOTE)]
    commands.comments["1"] = "kongming:app=xz kongming:no-exclusions"
    bridge.step()
    changes = ["JobId=2 ExcNodeList=n1", "JobId=3 ExcNodeList=n1"]
    assert [line for line in commands.updates if line.startswith("JobId")] == changes
    commands.updates.clear()
    bridge.reset()
    changes = ["JobId=2 ExcNodeList=", "JobId=3 ExcNodeList="]
    assert [line for line in commands.updates if line.startswith("JobId")] == changes


def test_a_job_that_has_just_started_is_no_failure(
    bridge: Bridge, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.pending = [("1", 10, "(null)", NOTE), ("2", 10, "(null)", NOTE)]
    updates = []

    def refuse(words: Sequence[str]) -> str:
        if "JobId=1" in words:
            raise ServiceError("Job is no longer pending execution")
        updates.append(words)
        return Commands.__call__(commands, words)

    monkeypatch.setattr(bridge._slurm, "_run", refuse)
    bridge.step()
    assert ["scontrol", "update", "JobId=2", "ExcNodeList=n1", OWN_CHANGE] in updates
    assert not bridge.failing
    bridge.reset()
    assert any("ExcNodeList=" in words for words in updates[-2:])


def test_a_failure_is_logged_once_and_retried_with_longer_waits(
    bridge: Bridge, server: Server, commands: Commands, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bridge.step()
    caplog.clear()
    server.away = True
    waits = [bridge.step() for _ in range(9)]
    assert [record.getMessage() for record in caplog.records].count(
        "the server: The server is away."
    ) == 1
    assert waits[0] <= 1.0 < waits[-1] <= 60.0
    assert bridge.failing
    caplog.clear()
    server.away = False
    bridge.step()
    assert "the server: works again" in caplog.messages
    assert not bridge.failing
    commands.away = True
    bridge.step()
    assert bridge.failing


def test_stale_rankings_are_not_used(
    bridge: Bridge, server: Server, commands: Commands, clock: list[float], tmp_path: Path
) -> None:
    bridge.step()
    before = (tmp_path / "rankings").read_text()
    server.away = True
    commands.pending = [("1", 10, "n[1,3]", f"{NOTE}n3")]
    commands.updates.clear()
    clock[0] += 60.0
    bridge.step()
    # Not stale yet: exclusions stay.
    assert commands.updates == ["NodeName=n1 Weight=6"]
    clock[0] += 61.0
    commands.updates.clear()
    bridge.step()
    assert commands.updates == ["JobId=1 ExcNodeList=n3"]
    assert (tmp_path / "rankings").read_text() == before


def test_assignments_of_jobs_that_are_gone_are_released(
    bridge: Bridge, server: Server, commands: Commands
) -> None:
    def assignment(id_: str, at: float) -> Assignment:
        return Assignment(id_, "xz", "n1", 0, None, "bound", bound_at=at)

    server.held = [
        assignment("slurm:north:7:0:n1", 100.0),
        assignment("slurm:north:8:0:n1", 100.0),
        assignment("slurm:north:9:0:n1", 990.0),
        assignment("slurm:south:1:0:n1", 100.0),
        assignment("pod-1", 100.0),
    ]
    commands.running = ["8"]
    bridge.step()
    assert server.released == []
    bridge.step()
    assert server.released == ["slurm:north:7:0:n1"]


def test_reset_undoes_everything(bridge: Bridge, commands: Commands, tmp_path: Path) -> None:
    bridge.step()
    commands.updates.clear()
    commands.pending = [("1", 10, "n1", NOTE), ("2", 10, "n[1-2]", f"{NOTE}n2")]
    bridge.reset()
    assert not (tmp_path / "rankings").exists()
    assert commands.updates == ["JobId=1 ExcNodeList=", "JobId=2 ExcNodeList=n2"]


def test_reset_leaves_weights_that_do_not_follow(
    tmp_path: Path, server: Server, commands: Commands
) -> None:
    document = {"rankings": {"file": str(tmp_path / "rankings")}, "weights": {"follow": False}}
    settings = declared.parse(config.Settings, document)
    bridge = Bridge(settings, lambda: server, Slurm(command=commands), now=lambda: 1000.0)
    bridge.step()
    bridge.reset()
    assert commands.updates == []


def test_what_fails_beside_the_rankings_does_not_let_them_grow_old(
    bridge: Bridge, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def assignments() -> None:
        raise UnavailableError("Nobody may ask for these.")

    monkeypatch.setattr(server, "assignments", assignments)
    waits = [bridge.step() for _ in range(8)]
    assert bridge.failing
    assert max(waits) <= bridge._settings.rankings.refresh_s
    assert min(waits) > 0.5 * bridge._settings.rankings.refresh_s
    assert (tmp_path / "rankings").exists()


def test_nodes_where_a_resident_would_be_too_slow_are_excluded_for_all() -> None:
    nodes = [ranked("a", 1.1, worst=1.0), ranked("b.site", 1.2, worst=2.0), ranked("c", 3.0)]
    assert slowdowns(nodes, ["a", "b", "c", "d"], 0.0) == (1.1, 1.2, 3.0, None)
    assert slowdowns(nodes, ["a", "b", "c", "d"], 1.5) == (1.1, NEVER, 3.0, None)


def test_a_short_name_of_two_hosts_is_unknown() -> None:
    nodes = [ranked("a.north", 1.1), ranked("a.south", 2.0)]
    assert slowdowns(nodes, ["a", "a.south"], 0.0) == (None, 2.0)


def test_of_a_name_that_comes_twice_none_is_believed() -> None:
    nodes = [ranked("a", 1.1), ranked("b", 1.2), ranked("b", 9.0)]
    assert slowdowns(nodes, ["a", "b"], 0.0) == (1.1, None)


# Times

TIMED = NOTE.replace(",own=", ",time=480,own=")


@pytest.fixture
def timed(tmp_path: Path, commands: Commands, server: Server) -> Bridge:
    """A bridge that sets --time-min: xz takes up to 220 s on n1 and 110 s on n2, n3 is unknown."""
    server.realised["xz"] = Realised(40, 5.0, 0.9, 0.9)
    settings = declared.parse(
        config.Settings, {"rankings": {"file": str(tmp_path / "rankings")}, "times": {"set": True}}
    )
    return Bridge(settings, lambda: server, Slurm(command=commands), now=lambda: 1000.0)


def times_of(folder: Path) -> RunTimes | None:
    return ranking_file.parse((folder / "rankings").read_text()).times


@pytest.mark.parametrize(
    ("realised", "known"),
    [
        (Realised(40, 5.0, 0.9, 0.9), True),
        (Realised(9, 5.0, 0.9, 0.9), False),
        (Realised(40, 5.0, 0.2, 0.9, drifted=True), False),
        (None, False),
    ],
)
def test_only_an_application_with_a_history_has_times(
    timed: Bridge, server: Server, tmp_path: Path, realised: Realised | None, known: bool
) -> None:
    server.realised = {} if realised is None else {"xz": realised}
    timed.step()
    times = times_of(tmp_path)
    assert times is not None
    assert times.apps == ({"xz": (221.0, 111.0, None)} if known else {})
    assert (times.sets, times.advises, times.share) == (True, True, 0.95)


def test_no_times_are_set_where_nothing_would_restore_the_limit(
    timed: Bridge, commands: Commands, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for commands.prolog, commands.reservations in (
        ("(null)", ""),
        ("/x", "ReservationName=a StartTime=x State=INACTIVE Flags=MAINT"),
    ):
        timed.step()
        times = times_of(tmp_path)
        assert times is not None
        assert not times.sets
        assert timed.failing == (commands.prolog == "(null)")
    assert caplog.text.count("--time-min is not set") == 1
    commands.reservations = "ReservationName=a StartTime=x State=ACTIVE Flags=MAINT"
    timed.step()
    times = times_of(tmp_path)
    assert times is not None
    assert times.sets


def test_time_min_of_pending_jobs_follows_the_predictions(
    timed: Bridge, commands: Commands, server: Server, tmp_path: Path
) -> None:
    server.slowdowns["xz"]["n1"] = 1.2
    commands.pending = [
        (id_, 10, "(null)", NOTE if id_ == "4" else TIMED)
        for id_ in ("1", "2", "3", "4", "5", "6_[1-9%2]", "7", "8")
    ]
    # No node has so many CPUs.
    commands.pending.append(("9", 10, "(null)", TIMED.replace("total=1", "total=5")))
    commands.comments["7"] = "kongming:no-time"
    commands.partitions["8"] = "main,fast"  # which does not start jobs of eight hours
    commands.times = {
        "1": ("8:00:00", "0:00"),
        "2": ("8:00:00", "3:00"),  # as it should be
        "3": ("8:00:00", "1:00"),  # too short
        "4": ("8:00:00", "1:00"),  # of its user
        "5": ("4:00:00", "0:00"),  # its user has changed the limit
        "6_[1-9%2]": ("8:00:00", "0:00"),
        "7": ("8:00:00", "0:00"),
        "8": ("8:00:00", "3:00"),
        "9": ("8:00:00", "3:00"),
    }
    timed.step()
    jobs = [line for line in commands.updates if line.startswith("JobId")]
    assert jobs == [
        *("JobId=1 TimeMin=3", "JobId=3 TimeMin=3", "JobId=6_[1-9] TimeMin=3"),
        *("JobId=8 TimeMin=0", "JobId=9 TimeMin=0"),
    ]
    # It is taken back where the application has no history any more, and by a reset.
    del server.realised["xz"]
    commands.updates.clear()
    timed.step()
    jobs = [line for line in commands.updates if line.startswith("JobId")]
    assert jobs == [f"JobId={id_} TimeMin=0" for id_ in (2, 3, 8, 9)]
    commands.updates.clear()
    # Put back into the queue before its limit was restored.
    commands.times["2"] = ("3:00", "3:00")
    timed.reset()
    restored = ["JobId=2 TimeLimit=480", *jobs]
    assert [line for line in commands.updates if "Time" in line] == restored


def test_time_min_of_a_job_that_its_user_has_changed_holds_on_all_nodes(
    timed: Bridge, commands: Commands, server: Server
) -> None:
    server.slowdowns["xz"]["n1"] = 4.0  # takes 441 s, and 111 s on n2
    commands.pending = [(id_, 10, ",", TIMED) for id_ in ("1", "2", "3", "4")]
    commands.times = {id_: ("8:00:00", "2:00") for id_ in ("1", "2")}
    commands.times["3"] = ("8:00:00", "0:00")
    commands.times["4"] = ("8:00:00", "8:00")
    commands.comments = dict.fromkeys("1234", "kongming:no-exclusions")
    del commands.comments["2"]
    timed.step()
    jobs = [line for line in commands.updates if line.startswith("JobId")]
    assert jobs == ["JobId=1 TimeMin=8", "JobId=2 ExcNodeList=n1"]
    # It is taken back where nothing is predicted any more.
    del server.realised["xz"]
    commands.updates.clear()
    timed.step()
    jobs = [line for line in commands.updates if "TimeMin" in line]
    assert jobs == ["JobId=1 TimeMin=0", "JobId=2 TimeMin=0", "JobId=4 TimeMin=0"]


@pytest.mark.parametrize(
    ("switch", "taken_back"),
    [
        ({"skip_users": ["7"]}, ["1"]),
        ({"users": ["7"]}, ["2"]),
        ({"skip_apps": ["xz"]}, ["1", "2"]),
    ],
)
def test_switches_count_for_jobs_that_wait_already(
    tmp_path: Path,
    commands: Commands,
    server: Server,
    switch: dict[str, list[str]],
    taken_back: list[str],
) -> None:
    server.slowdowns["xz"]["n1"] = 1.2
    server.realised["xz"] = Realised(40, 5.0, 0.9, 0.9)
    commands.pending = [(id_, 10, "(null)", TIMED) for id_ in ("1", "2")]
    commands.times = dict.fromkeys("12", ("8:00:00", "3:00"))
    commands.users = {"1": 7, "2": 9}
    document = {"rankings": {"file": str(tmp_path / "rankings")}, "times": {"set": True} | switch}
    settings = declared.parse(config.Settings, document)
    Bridge(settings, lambda: server, Slurm(command=commands), now=lambda: 1000.0).step()
    jobs = [line for line in commands.updates if line.startswith("JobId")]
    assert jobs == [f"JobId={id_} TimeMin=0" for id_ in taken_back]


def test_a_limit_that_backfill_lowered_is_restored(bridge: Bridge, commands: Commands) -> None:
    commands.limited = [(id_, TIMED) for id_ in ("1", "2", "3", "7_4")] + [("5", NOTE)]
    commands.times = {
        "1": ("3:00", "3:00"),
        "2": ("8:00:00", "3:00"),
        "3": ("3:00", "3:00"),
        "7_4": ("1-00:00:00", "3:00"),
        "5": ("3:00", "3:00"),
    }
    commands.comments["3"] = "nightly kongming:no-time"
    bridge.step()
    assert [line for line in commands.updates if "TimeLimit" in line] == ["JobId=1 TimeLimit=480"]


def test_a_user_that_does_not_exist_is_named(server: Server, commands: Commands) -> None:
    settings = declared.parse(config.Settings, {"times": {"users": ["nobody-of-this-name"]}})
    with pytest.raises(InputError) as raised:
        Bridge(settings, lambda: server, Slurm(command=commands))
    assert raised.value.field == "times.users"


def test_comments_of_many_jobs_are_read_by_few_commands(
    timed: Bridge, commands: Commands, server: Server
) -> None:
    server.slowdowns["xz"]["n1"] = 1.2
    pending, running = map(str, range(1, 101)), map(str, range(101, 201))
    commands.pending = [(id_, 10, "(null)", TIMED) for id_ in pending]
    commands.limited = [(id_, TIMED) for id_ in running]
    for number in range(1, 201):
        commands.times[str(number)] = ("8:00:00", "0:00") if number <= 100 else ("3:00", "3:00")
        commands.comments[str(number)] = "kongming:no-time"
    timed.step()
    assert [line for line in commands.updates if line.startswith("JobId")] == []
    assert len(commands.calls) < 20


def test_a_comment_that_looks_like_the_line_of_another_job() -> None:
    text = "1|a\n2|nightly\nkongming:no-time\n6_[1-9%2]|x\n7+1|y\n3|\n1|kongming:no-time\n"
    assert Slurm(command=lambda words: text).comments() == {
        "1": ["a", "kongming:no-time"],
        "2": ["nightly\nkongming:no-time"],
        "6_[1-9]": ["x"],
        "7+1": ["y"],
        "3": [""],
    }
