"""The made-up binary on a made-up machine: what is timed while something is induced takes longer.

MADE_UP_LOAD is a folder in which inducers say what they do for as long as they live.
"""

import math
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "probes"))

import fake_microbench as fake

LOAD = Path(os.environ["MADE_UP_LOAD"])


def induced():
    """(family, intensity) of everything that is induced now."""
    for note in LOAD.iterdir():
        if Path(f"/proc/{note.name}").exists():
            for line in note.read_text().splitlines():
                name, intensity = line.split()
                yield fake.family(name), float(intensity)


def main():
    given, names = fake.options(sys.argv[2:])
    if sys.argv[1] == "induce":
        intensity = given.get("--intensity", "1")
        note = "".join(f"{name} {intensity}\n" for name in names)
        (LOAD / str(os.getpid())).write_text(note)
    if sys.argv[1] == "probe":
        loads = list(induced())
        for name in fake.COSTS:
            own = sum(intensity for family, intensity in loads if family == fake.family(name))
            slowdown = math.exp(0.8 * own + 0.1 * len(loads) + random.gauss(0.0, 0.01))
            fake.COSTS[name] *= slowdown
    fake.main()


main()
