"""Prints the lines of ``kongming-microbench`` with made-up numbers, for tests without hardware.

FAKE_MODE picks how it misbehaves; FAKE_LOG is a file that gets the arguments, one run a line.
"""

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

MODE = os.environ.get("FAKE_MODE", "")
COSTS = {
    "memory.random.1K": 1e-9,
    "memory.random.8M": 20e-9,
    "memory.random.512M": 90e-9,
    "stream.triad": 2e-9,
    "compute.int": 1e-9,
    "os.wakeup": 5e-5,
    "iobench.read.4M": 2e-3,
    "iobench.write.4M": 4e-3,
}
SUITES = {}
if extra := os.environ.get("FAKE_EXTRA"):
    # One more surrogate, of these suites.
    COSTS["memory.extra"], SUITES["memory.extra"] = 9e-9, extra.split(",")
FAMILIES = {"memory": "memory", "stream": "memory", "compute": "compute", "os": "os"}


def tell(line):
    # Not through a buffer, which a signal handler must not enter twice.
    os.write(1, f"{line}\n".encode())


def say(**event):
    tell(json.dumps(event))


def family(name):
    if name.startswith("iobench"):
        return name.split(".")[1]
    if name.endswith((".1K", ".8M")):
        return "cache"
    return FAMILIES[name.split(".")[0]]


def listing():
    for name in COSTS:
        quick = name in ("memory.random.8M", "compute.int", "iobench.read.4M")
        probe_only = name == "os.wakeup"
        moved = {"stream.triad": 24, "iobench.read.4M": 4 << 20}.get(name)
        say(
            name=name,
            family=family(name),
            op="one operation",
            unit="s",
            roles=["probe"] if probe_only else ["probe", "inducer"],
            paper=not name.startswith(("os", "compute")),
            suites=["quick", "standard", "full"]
            if quick
            else SUITES.get(name, ["standard", "full"]),
            size_bytes=int(os.environ.get("FAKE_SIZE", "8388608")) if "8M" in name else None,
            bytes_per_op=moved,
            description="It does something.",
            no_inducer_reason="waiting loads nothing." if probe_only else None,
            instead_of="memory.random.1G" if name.endswith("512M") else None,
        )


def options(arguments):
    given, names, flags = {}, [], ("--whole-blocks",)
    waiting = iter(arguments)
    for word in waiting:
        if word in flags:
            given[word] = True
        elif word.startswith("--"):
            given[word] = next(waiting)
        else:
            names.append(word)
    return given, names


def ended(given, seconds):
    """Waits; true when the lifeline broke."""
    return bool(select.select([int(given["--lifeline"])], [], [], seconds)[0])


def slowed():
    """How much longer batches take, and the slow one of them more, next to a load: always where
    both share a core; on a busy node in the first four rounds. Where other work takes the CPU now
    and then it is only the slow one, by a time slice."""
    if MODE not in ("busy", "shared", "preempted"):
        return 1, 3
    lines = Path(os.environ["FAKE_LOG"]).read_text().splitlines()
    commands = [json.loads(line)[0] for line in lines]
    if commands[-2:] != ["induce", "probe"]:
        return 1, 3
    if MODE == "preempted":
        return 1, 100
    return 2 if MODE == "shared" or commands.count("induce") <= 4 else 1, 3


def torn(names):
    """Fails at what it works on when it is stopped, as where its folder is removed meanwhile."""

    def fail(*_):
        for name in names:
            say(event="error", name=name, error="There is no such file.")
        os._exit(0)

    signal.signal(signal.SIGTERM, fail)


def probe(given, names):
    factor, preempted = slowed()
    if MODE == "torn":
        torn(names)
    say(event="start", schema=9 if MODE == "newer" else 1, clock_granularity_ns=30, pid=os.getpid())
    if MODE == "layout":
        for done in (0, 50, 100):
            say(event="layout", bytes=done, total=100)
    if MODE == "silent":
        ended(given, 60)
    say(event="ready", setup_ns=1000)
    began = time.monotonic_ns()
    deadline = began + float(given["--seconds"]) * 1e9
    rounds = int(given.get("--rounds", 1 << 30))
    for count in range(rounds):
        if count > 0 and time.monotonic_ns() > deadline:
            break
        for index, name in enumerate(names):
            if MODE == "io-fails" and name.startswith("iobench"):
                if count == 0:
                    say(event="error", name=name, error="The folder is read-only.")
                continue
            if MODE == "all-fail":
                if count == 0:
                    say(event="error", name=name, error="It failed.")
                continue
            if MODE == "fails-late" and count > 0 and index == 0:
                if count == 1:
                    say(event="error", name=name, error="What it read is not what it wrote.")
                continue
            if MODE == "malformed":
                tell('{"event":"chunk", oops')
            if MODE == "dies" and index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            start = time.monotonic_ns()
            if ended(given, 0.002):
                return
            batch = [100, round(100 * factor * COSTS[name] * 1e9)]
            slow = [100, preempted * batch[1]]
            extra = {"direct": MODE != "buffered"} if name.startswith("iobench") else {}
            say(
                event="chunk",
                name=name,
                start_ns=start,
                end_ns=time.monotonic_ns(),
                ops=300,
                ns=2 * batch[1] + slow[1],
                batches=[batch, slow, batch],
                partial=False,
                **extra,
            )
    say(event="end", elapsed_ns=time.monotonic_ns() - began)


def induce(given, names):
    if MODE == "disk-full":
        say(event="error", name=names[0], error="Less than 2 GiB would stay free.")
        sys.exit(1)
    if MODE == "never-ready":
        ended(given, 60)
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    began = time.monotonic()

    def end(*_):
        took = time.monotonic() - began
        if MODE == "tardy":
            time.sleep(0.4)
        say(event="end", duty=float(given["--intensity"]), ops=1000, elapsed_s=took, cpu_s=took)
        os._exit(0)

    if MODE != "deaf":
        signal.signal(signal.SIGTERM, end)
    say(event="ready", pids=[os.getpid()])
    if MODE == "dies":
        sys.stderr.write("kongming-microbench: a worker was killed\n")
        sys.exit(1)
    ended(given, float(given.get("--seconds", 60)))
    end()


def main():
    given, names = options(sys.argv[2:])
    if "FAKE_LOG" in os.environ:
        with Path(os.environ["FAKE_LOG"]).open("a") as log:
            log.write(json.dumps(sys.argv[1:]) + "\n")
    if MODE == "fails":
        sys.stderr.write("kongming-microbench: there is no such thing\n")
        sys.exit(2)
    {"list": lambda *_: listing(), "probe": probe, "induce": induce}[sys.argv[1]](given, names)


if __name__ == "__main__":
    main()
