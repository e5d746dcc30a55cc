"""What is tried under the real scheduler; each trial returns what it saw, for one JSON document."""

from __future__ import annotations

import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.extender.cluster import Bindings, Cluster
from benchmarks.extender.control_plane import ControlPlane
from benchmarks.extender.kongming_side import Extender, Fleet

CALM, SLOWED = 1.0, 1.6
LIMIT = "1.2"
_FAST_CLIENT = {"qps": 5000, "burst": 5000}
"""A scheduler's client may by default bind 50 pods a second, whatever its extenders do."""


class Trials:
    """All of them share one control plane, one KONGMING server and one extender."""

    def __init__(
        self, plane: ControlPlane, fleet: Fleet, extender: Extender, options: Mapping[str, Any]
    ) -> None:
        self._plane, self._fleet, self._extender = plane, fleet, extender
        self._cluster = Cluster(plane)
        self._seconds: float = options["seconds"]
        self._turns: int = options["turns"]
        self._pods: int = options["pods"]
        self._many: int = options["nodes"]
        self._random = random.Random(1)

    # -- placing -------------------------------------------------------------------------------

    def placement(self) -> dict[str, Any]:
        """20 pods on 20 nodes, of which half are slowed."""
        slowdowns = self._nodes(20, slowed=range(10))
        rows: dict[str, list[int]] = {"with": [], "without": []}
        for _ in range(self._turns):
            for mode in self._shuffled(rows):
                nodes = self._place(20, mode == "with")
                rows[mode].append(sum(slowdowns[node] > CALM for node in nodes))
        return {"pods": 20, "nodes": 20, "slowed_nodes": 10, "pods_on_slowed_nodes": rows}

    def shown_nodes(self) -> dict[str, Any]:
        """One of a hundred nodes is calm, with room for all pods: with the shipped share of nodes
        that is shown, and with the scheduler's default. The scheduler has nodes in no order."""
        calm = self._many // 100
        slowdowns = self._nodes(self._many, slowed=range(calm, self._many))
        # So few that a calm node stays better than a slowed one.
        pods = 10 * calm
        modes = {"shipped": {}, "default": {"percentageOfNodesToScore": None}}
        rows: dict[str, dict[str, list[float]]] = {
            mode: {
                "pods_on_slowed_nodes": [],
                "mean_share_of_nodes_shown": [],
                "questions": [],
                "questions_failed_open": [],
            }
            for mode in modes
        }
        for _ in range(self._turns):
            for mode in self._shuffled(modes):
                shares, questions = self._shown()
                failed = self._extender.sample("failed_open_total")
                nodes = self._place(pods, True, **modes[mode])
                failed = self._extender.sample("failed_open_total") - failed
                shares, questions = (
                    now - old for now, old in zip(self._shown(), (shares, questions), strict=True)
                )
                slowed = sum(slowdowns[node] > CALM for node in nodes)
                rows[mode]["pods_on_slowed_nodes"].append(slowed)
                rows[mode]["mean_share_of_nodes_shown"].append(round(shares / questions, 3))
                rows[mode]["questions"].append(questions)
                rows[mode]["questions_failed_open"].append(failed)
        return {"nodes": self._many, "calm_nodes": calm, "pods": pods, **rows}

    def _shown(self) -> tuple[float, float]:
        """Sum of the shares of nodes that questions named, and their count."""
        name = "known_nodes_share"
        return self._extender.sample(f"{name}_sum"), self._extender.sample(f"{name}_count")

    def unknown_nodes(self) -> dict[str, Any]:
        """Every known node is slowed, and one node's agent has never reported."""
        self._nodes(4, slowed=range(3), silent=[3])
        silent = "silent-0003"
        requests: dict[str, dict[str, str]] = {
            f"{'limit' if limit else 'free'}-{unknown or 'default'}": {
                **({"limit": LIMIT} if limit else {}),
                **({"unknown": unknown} if unknown else {}),
            }
            for limit in (True, False)
            for unknown in ("", "allow", "last", "refuse")
        }
        self._scheduler(True)
        rows: dict[str, dict[str, str]] = {}
        for phase in ("open", "known nodes cordoned"):
            if phase != "open":
                self._cluster.cordon(_name(n) for n in range(3))
            for name, wanted in requests.items():
                self._cluster.create([name], **wanted)
            # Pods that wait are never placed.
            nodes = self._cluster.placed(list(requests), 10.0)
            rows[phase] = {
                name: "waits" if not node else "silent" if node == silent else "known"
                for name, node in nodes.items()
            }
            if phase == "open":
                rows["conditions"] = {
                    name: self._cluster.condition(name) for name, at in nodes.items() if not at
                }
            self._cluster.delete()
        return dict(rows)

    # -- waiting -------------------------------------------------------------------------------

    def refusals(self) -> dict[str, Any]:
        """A pod that no node suits, while the slowdowns change all the time: how often it is tried,
        and how soon it is placed after a node became calm."""
        result: dict[str, Any] = {}
        for mode in ("shipped", "a number in each text"):
            names = list(self._nodes(20, slowed=range(20)))
            self._extender.end()
            self._extender.start(changing_reasons=mode != "shipped")
            self._scheduler(True)
            with self._restless(names[1:]):
                begun = time.monotonic()
                filters_before = self._filters()
                self._cluster.create(["strict"], limit=LIMIT)
                counts, texts = {}, Counter[str]()
                for after_s in (10.0, self._seconds):
                    while time.monotonic() < begun + after_s:
                        texts[self._cluster.condition("strict")] += 1
                        time.sleep(0.2)
                    counts[f"{after_s:.0f} s"] = self._filters() - filters_before
                row = {
                    "attempts": counts,
                    "condition": self._cluster.condition("strict"),
                    "different_conditions_seen": len(texts - Counter({"": 10**9})),
                }
                if mode == "shipped":
                    self._fleet.set(names[0], CALM)
                    calm_at = time.monotonic()
                    nodes = self._cluster.placed(["strict"], 400.0)
                    row["seconds_until_placed_on_a_node_that_became_calm"] = round(
                        time.monotonic() - calm_at, 1
                    )
                    row["placed_on_it"] = nodes["strict"] == names[0]
            result[mode] = row
            self._cluster.delete()
        self._extender.end()
        self._extender.start()
        return result

    # -- speed ---------------------------------------------------------------------------------

    def throughput_of_few(self) -> dict[str, Any]:
        """On 20 nodes; before there are many, which the server would rank as well."""
        return self._throughput(20)

    def throughput_of_many(self) -> dict[str, Any]:
        return self._throughput(self._many)

    def _throughput(self, count: int) -> dict[str, Any]:
        """Pods a second from the first to the last binding of a burst, by turns in random order;
        ``ratio`` is with the extender over without it, of the medians."""
        self._nodes(count, slowed=range(count // 2))
        result: dict[str, Any] = {"nodes": count, "pods": self._pods}
        before = self._request_times()
        for client, changes in (("shipped client", {}), ("fast client", _FAST_CLIENT)):
            rates: dict[str, list[float]] = {"with": [], "without": []}
            for _ in range(self._turns):
                for mode in self._shuffled(rates):
                    rates[mode].append(round(self._rate(mode == "with", changes), 1))
            medians = {mode: statistics.median(values) for mode, values in rates.items()}
            result[client] = {
                "pods_a_second": rates,
                "ratio": round(medians["with"] / medians["without"], 3),
            }
        result["mean_ms_of_requests"] = {
            verb: round(1e3 * (seconds - before[verb][0]) / (count - before[verb][1]), 2)
            for verb, (seconds, count) in self._request_times().items()
        }
        return result

    def _request_times(self) -> dict[str, tuple[float, float]]:
        """Seconds and count of all requests that the extender answered, by verb."""
        name = "request_seconds"
        return {
            verb: (
                self._extender.sample(f"{name}_sum", verb=verb),
                self._extender.sample(f"{name}_count", verb=verb),
            )
            for verb in ("filter", "prioritize")
        }

    def _rate(self, with_extender: bool, client: Mapping[str, Any]) -> float:
        self._plane.end("scheduler")
        names = [f"burst-{n}" for n in range(self._pods)]
        self._cluster.create(names)
        with Bindings(self._plane) as bindings:
            configuration = self._configuration(with_extender)
            configuration["clientConnection"] |= client
            self._plane.start_scheduler(configuration)
            bindings.wait(len(names), 300.0)
        times = sorted(bindings.times.values())
        self._clear()
        return (len(times) - 1) / (times[-1] - times[0])

    # -- watching ------------------------------------------------------------------------------

    def watching(self) -> dict[str, Any]:
        """Pods that run and end; restarts of everything; what the account may do."""
        self._nodes(20, slowed=range(10))
        self._scheduler(True)
        result: dict[str, Any] = {"assignments": self._lives()}
        result["api server restarted"] = self._api_restart()
        result["changes forgotten"] = self._forgotten_changes()
        result["scheduler restarted"] = self._scheduler_restart()
        result["extender killed"] = self._extender_kill()
        self._clear()
        return result

    def _lives(self) -> dict[str, Any]:
        names = ["waits", "runs", "ends", "goes"]
        self._cluster.create(names)
        self._cluster.placed(names)
        uids = {name: pod["metadata"]["uid"] for name, pod in self._cluster.pods().items()}
        seen: dict[str, Any] = {}
        self._until_assigned({uid: "reserved" for uid in uids.values()})
        seen["bound"] = "reserved"
        for name in ("runs", "ends", "goes"):
            self._cluster.run(name, since_s=90.0)
        wanted = {uid: "reserved" if name == "waits" else "bound" for name, uid in uids.items()}
        self._until_assigned(wanted)
        seen["running"] = "bound"
        self._cluster.run("ends", since_s=90.0, ended=True)
        self._cluster.delete(["goes"])
        self._until_assigned({uids["waits"]: "reserved", uids["runs"]: "bound"})
        seen["succeeded or deleted"] = "released"
        outcomes = ("reported", "refused", "short", "failed", "unknown")
        _until(lambda: sum(self._extender.sample("runs_total", outcome=o) for o in outcomes) >= 1)
        seen["runs"] = {
            outcome: count
            for outcome in outcomes
            if (count := self._extender.sample("runs_total", outcome=outcome))
        }
        self._cluster.delete()
        self._until_assigned({})
        return seen

    def _api_restart(self) -> dict[str, Any]:
        lists = {cause: self._lists(cause) for cause in ("gone", "error", "recheck")}
        self._plane.end("api", signal.SIGKILL)
        _until(lambda: self._extender.watch_state() == "away")
        self._plane.start_api()
        begun = time.monotonic()
        _until(lambda: self._extender.watch_state() == "connected")
        watched = time.monotonic() - begun
        # A scheduler that lost its lease meanwhile has ended: on a real node it is started again.
        self._scheduler(True)
        self._cluster.create(["after"])
        node = self._cluster.placed(["after"], 120.0)["after"]
        uid = self._cluster.pods()["after"]["metadata"]["uid"]
        self._until_assigned({uid: "reserved"})
        self._cluster.delete()
        self._until_assigned({})
        return {
            "seconds_until_watched_again": round(watched, 1),
            "lists_by_cause": {
                cause: self._lists(cause) - before for cause, before in lists.items()
            },
            "the_next_pod_was_placed": bool(node),
        }

    def _forgotten_changes(self) -> dict[str, Any]:
        """The extender is paused without a connection while a pod ends, and etcd forgets that."""
        self._cluster.create(["ends", "stays"])
        self._cluster.placed(["ends", "stays"])
        uids = {name: pod["metadata"]["uid"] for name, pod in self._cluster.pods().items()}
        self._until_assigned(dict.fromkeys(uids.values(), "reserved"))
        before = self._lists("gone")
        # What was written to an open connection would be read later.
        self._plane.end("api", signal.SIGKILL)
        self._extender.pause()
        try:
            self._plane.start_api()
            self._cluster.delete(["ends"])
            self._plane.compact()
            # An API server remembers the latest changes by itself, until it is restarted.
            self._plane.end("api", signal.SIGKILL)
            self._plane.start_api()
        finally:
            self._extender.resume()
        missed = self._until_assigned({uids["stays"]: "reserved"})
        lists = self._lists("gone") - before
        self._scheduler(True)
        self._clear()
        return {"lists_for_410": lists, "assignments_right_again": not missed}

    def _scheduler_restart(self) -> dict[str, Any]:
        self._plane.end("scheduler", signal.SIGKILL)
        self._cluster.create([f"between-{n}" for n in range(5)])
        begun = time.monotonic()
        self._scheduler(True, leaderElection={"leaderElect": True})
        nodes = self._cluster.placed([f"between-{n}" for n in range(5)], 120.0)
        took = time.monotonic() - begun
        self._clear()
        return {"placed": sum(map(bool, nodes.values())), "seconds": round(took, 1)}

    def _extender_kill(self) -> dict[str, Any]:
        self._cluster.create(["old-1", "old-2"])
        self._cluster.placed(["old-1", "old-2"])
        uids = {name: pod["metadata"]["uid"] for name, pod in self._cluster.pods().items()}
        self._until_assigned(dict.fromkeys(uids.values(), "reserved"))
        self._extender.end(signal.SIGKILL)
        begun = time.monotonic()
        names = [f"open-{n}" for n in range(5)]
        self._cluster.create(names)
        nodes = self._cluster.placed(names)
        took = time.monotonic() - begun
        self._cluster.delete(["old-1"])
        self._extender.start()
        # Of a node without pods it learns by the scheduler's next question.
        self._cluster.create(["next"])
        self._cluster.placed(["next"])
        uids = {name: pod["metadata"]["uid"] for name, pod in self._cluster.pods().items()}
        begun = time.monotonic()
        # What ended while nobody watched is released after a while: clocks may differ.
        missed = self._until_assigned(dict.fromkeys(uids.values(), "reserved"), 400.0)
        return {
            "placed_meanwhile": sum(map(bool, nodes.values())),
            "seconds_for_five_pods": round(took, 1),
            "assignments_right_again": not missed,
            "seconds_until_right": round(time.monotonic() - begun, 1),
        }

    # -- inside --------------------------------------------------------------------------------

    def _nodes(
        self, count: int, *, slowed: Sequence[int] | set[int] | range, silent: Sequence[int] = ()
    ) -> dict[str, float]:
        """So many nodes and no pods; returns their slowdowns. The agents of ``silent`` ones have
        never reported; these nodes have names of their own."""
        self._clear()
        names = {n: f"silent-{n:04d}" if n in silent else _name(n) for n in range(count)}
        slowdowns = {
            name: SLOWED + n % 7 / 100 if n in slowed else CALM
            for n, name in names.items()
            if n not in silent
        }
        self._cluster.set_nodes(names.values())
        for name, slowdown in slowdowns.items():
            self._fleet.set(name, slowdown)
        self._extender.end()
        self._extender.start()
        return slowdowns

    def _place(self, count: int, with_extender: bool, **changes: Any) -> list[str]:
        """The nodes of a burst of pods, which are gone afterwards."""
        self._scheduler(with_extender, **changes)
        names = [f"pod-{n}" for n in range(count)]
        self._cluster.create(names)
        nodes = self._cluster.placed(names, 180.0)
        self._clear()
        return list(nodes.values())

    def _clear(self) -> None:
        self._cluster.delete()
        self._until_assigned({})

    def _configuration(self, with_extender: bool, **changes: Any) -> dict[str, Any]:
        """The shipped one, but for what a trial sets, and for the lease: each start would wait a
        quarter of a minute for that of the scheduler before."""
        changes = {"leaderElection": {"leaderElect": False}} | changes
        return self._extender.scheduler_configuration(
            self._plane.scheduler_kubeconfig, extender=with_extender, **changes
        )

    def _scheduler(self, with_extender: bool, **changes: Any) -> None:
        self._plane.start_scheduler(self._configuration(with_extender, **changes))

    def _shuffled(self, modes: Mapping[str, Any]) -> list[str]:
        return self._random.sample(sorted(modes), len(modes))

    def _filters(self) -> int:
        return int(self._extender.sample("requests_total", verb="filter"))

    def _lists(self, cause: str) -> int:
        return int(self._extender.sample("watch_lists_total", cause=cause))

    def _until_assigned(self, wanted: Mapping[str, str], timeout_s: float = 60.0) -> bool:
        """Whether the server's assignments were not these in time."""
        return not _until(lambda: self._fleet.assignments() == wanted, timeout_s)

    @contextmanager
    def _restless(self, names: Sequence[str]) -> Iterator[None]:
        """Agents report other slowdowns all the time, none of them calm."""
        done = threading.Event()

        def report() -> None:
            while not done.wait(0.2):
                for name in names:
                    self._fleet.set(name, self._random.uniform(1.4, 1.7))

        thread = threading.Thread(target=report)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _name(n: int) -> str:
    return f"node-{n:04d}"


def _until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
