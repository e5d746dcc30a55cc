"""kongming-extender under a real kube-scheduler and API server. Prints one JSON document.

    make kubernetes                                        # once: builds them, ten minutes
    python -m benchmarks.extender.real_cluster             # about twenty minutes
    python -m benchmarks.extender.real_cluster --only placement unknown_nodes --turns 1
    python -m benchmarks.extender.real_cluster --programs FOLDER    # any version, 1.20 or from 1.25

On loopback run etcd, kube-apiserver (RBAC enforced), kube-scheduler with the shipped
configuration, a kongming-server and the extender with the shipped settings, all over TLS. Nodes are
objects with capacity and without a kubelet; the server knows each by what a made-up agent reported.
See control_plane.py, kongming_side.py and trials.py for what differs from a cluster.

    manifests            the commands and objects of daemon/deploy/kubernetes, and what the
                         extender's account may and may not do
    placement            pods on slowed nodes, with and without the extender
    shown_nodes          with percentageOfNodesToScore as shipped, and the scheduler's default
    unknown_nodes        kongming.dev/unknown, with and without a limit, where one agent is silent
    refusals             attempts for a pod that no node suits, with constant and changing texts
    watching             pods that end; the API server, the scheduler and the extender restarted
    throughput_of_few, throughput_of_many
                         pods a second with and without the extender, 20 and --nodes nodes

Everything that it starts ends with it. Exit status 0, or 1 where something did not start.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kongming_server.security.certificates import init_tls

from benchmarks.extender import build_kubernetes, manifests
from benchmarks.extender.control_plane import ControlPlane
from benchmarks.extender.kongming_side import EXTENDER_NAME, SERVER_NAME, Extender, Fleet
from benchmarks.extender.trials import Trials

TRIALS = (
    "placement",
    "unknown_nodes",
    "watching",
    "throughput_of_few",
    "refusals",
    "shown_nodes",
    "throughput_of_many",
)
EXTENDER_USER = "system:serviceaccount:kongming:kongming-extender"


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    programs = options.programs / "bin"
    plane_folder, server_folder = folder / "plane", folder / "server"
    plane_folder.mkdir()
    server_folder.mkdir()
    # Where the commands of the manifests look for them.
    init_tls(plane_folder / "tls", [SERVER_NAME])
    init_tls(plane_folder / "extender-tls", [EXTENDER_NAME])
    results: dict[str, Any] = {}
    with (
        ControlPlane(programs, plane_folder) as plane,
        Fleet(server_folder, plane_folder / "tls") as fleet,
    ):
        applied = manifests.apply_all(plane)
        extender = Extender(plane_folder / "extender-tls", plane, fleet)
        try:
            extender.start()
            trials = Trials(plane, fleet, extender, vars(options))
            for name in options.only:
                began = time.monotonic()
                print(f"{name} ...", file=sys.stderr, flush=True)
                results[name] = getattr(trials, name)()
                results[name]["seconds"] = round(time.monotonic() - began)
                print(json.dumps(results[name]), file=sys.stderr, flush=True)
            refused = plane.forbidden(EXTENDER_USER)
        finally:
            extender.end()
        applied["pods_of_templates"] = manifests.admitted(plane)
        applied["extender_was_refused"] = refused
        applied["account_may"] = manifests.permissions(plane)
        version = plane.admin.get("/version")["gitVersion"]
        called = extender.scheduler_configuration(plane.scheduler_kubeconfig)["apiVersion"]
    return {
        "schema": 1,
        "benchmark": "real_cluster",
        "kubernetes": version,
        "scheduler_configuration": f"as shipped, called {called}",
        "manifests": applied,
        **results,
        "load1": os.getloadavg()[0],
        "cpus": os.cpu_count(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=TRIALS, default=TRIALS, metavar="TRIAL")
    parser.add_argument("--nodes", type=int, default=400, help="of the large cluster")
    parser.add_argument("--pods", type=int, default=150, help="of a burst")
    parser.add_argument("--turns", type=int, default=3, help="with and without, each")
    parser.add_argument("--seconds", type=float, default=60.0, help="that attempts are counted for")
    parser.add_argument(
        "--programs", type=Path, default=build_kubernetes.FOLDER, help="has bin/ of make kubernetes"
    )
    parser.add_argument("--keep", type=Path, help="a new folder for logs and data, which stays")
    options = parser.parse_args()
    if min(options.turns, options.pods - 1) < 1 or options.nodes < 100 or options.seconds < 10:
        parser.error("--turns from 1, --pods from 2, --nodes from 100 and --seconds from 10 on")
    absent = build_kubernetes.missing(options.programs)
    if absent:
        print(f"Not built: {', '.join(absent)}. Run: make kubernetes", file=sys.stderr)
        return 1
    if options.keep is not None:
        options.keep.mkdir(parents=True)
        document = run(options, options.keep.resolve())
    else:
        with tempfile.TemporaryDirectory() as folder:
            document = run(options, Path(folder))
    print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
