"""Lloyd's k-means over points drawn around known centres. kmeans.py THOUSAND_POINTS ROUNDS."""

from __future__ import annotations

import sys

import numpy as np

DIMENSIONS = 32
CLUSTERS = 24


def main() -> None:
    count, rounds = int(sys.argv[1]) * 1000, int(sys.argv[2])
    rng = np.random.default_rng(3)
    truth = rng.uniform(-100.0, 100.0, (CLUSTERS, DIMENSIONS))
    belongs = rng.integers(0, CLUSTERS, count)
    points = rng.standard_normal((count, DIMENSIONS))
    points += truth[belongs]
    # Begun near the true centres, so that every cluster finds its own whatever the machine.
    centres = truth + rng.uniform(-20.0, 20.0, truth.shape)
    distances = np.empty((count, CLUSTERS))
    for _ in range(rounds):
        # The length of a point is the same to every centre and is left out.
        np.matmul(points, -2.0 * centres.T, out=distances)
        distances += (centres**2).sum(axis=1)
        nearest = distances.argmin(axis=1)
        sizes = np.bincount(nearest, minlength=CLUSTERS)
        for axis in range(DIMENSIONS):
            sums = np.bincount(nearest, points[:, axis], minlength=CLUSTERS)
            centres[:, axis] = sums / sizes
    wrong = int((nearest != belongs).sum())
    print(f"{wrong} of {count} points in a wrong cluster")


main()
