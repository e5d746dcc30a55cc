"""neighbours.py VECTORS: a graph of near vectors of 64 numbers is built, then asked."""

import sys

import faiss
import numpy as np

count = int(sys.argv[1])
faiss.omp_set_num_threads(1)
rng = np.random.default_rng(18)
vectors = rng.normal(size=(count, 64)).astype("f4")
index = faiss.IndexHNSWFlat(64, 16)
index.hnsw.efConstruction = 60
index.add(vectors)
index.hnsw.efSearch = 40
near, _ = index.search(vectors[: count // 2] + 0.01, 5)
print(f"{count} vectors, {float(near[:, 0].mean()):.5f}")
