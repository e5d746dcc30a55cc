"""Five bodies under gravity in plain Python: the interpreter and nothing else. nbody.py STEPS."""

from __future__ import annotations

import itertools
import sys

# Position, velocity and mass of the sun and four planets, in astronomical units and years.
SUN = 39.47841760435743
BODIES = [
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, SUN],
    [4.8414, -1.1603, -0.1036, 0.6063, 2.8119, -0.0252, 9.5479e-4 * SUN],
    [8.3434, 4.1248, -0.4035, -1.0107, 1.8256, 0.0084, 2.8588e-4 * SUN],
    [12.8943, -15.1112, -0.2233, 1.0827, 0.8687, -0.0108, 4.3662e-5 * SUN],
    [15.3796, -25.9193, 0.1792, 0.9792, 0.5941, -0.0348, 5.1513e-5 * SUN],
]


def energy() -> float:
    total = sum(0.5 * m * (u * u + v * v + w * w) for _, _, _, u, v, w, m in BODIES)
    for a, b in itertools.combinations(BODIES, 2):
        total -= a[6] * b[6] / sum((p - q) ** 2 for p, q in zip(a[:3], b[:3], strict=True)) ** 0.5
    return total


def advance(steps: int, step: float) -> None:
    pairs = list(itertools.combinations(BODIES, 2))
    for _ in range(steps):
        for a, b in pairs:
            dx, dy, dz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
            pull = step / (dx * dx + dy * dy + dz * dz) ** 1.5
            by_b, by_a = b[6] * pull, a[6] * pull
            a[3] -= dx * by_b
            a[4] -= dy * by_b
            a[5] -= dz * by_b
            b[3] += dx * by_a
            b[4] += dy * by_a
            b[5] += dz * by_a
        for body in BODIES:
            body[0] += step * body[3]
            body[1] += step * body[4]
            body[2] += step * body[5]


def main() -> None:
    before = energy()
    advance(int(sys.argv[1]), 0.001)
    drift = abs(energy() / before - 1.0)
    print("energy kept" if drift < 1e-3 else f"energy drifted by {drift}")


main()
