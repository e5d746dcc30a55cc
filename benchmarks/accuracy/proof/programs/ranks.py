"""ranks.py NODES: a graph that grows by preference; ranks, communities and cores of its nodes."""

import random
import sys

import igraph

count = int(sys.argv[1])
random.seed(19)
graph = igraph.Graph.Barabasi(count, 8)
ranks = graph.pagerank()
parts = graph.community_label_propagation()
cores = graph.coreness()
far = graph.distances(source=[0, 1, 2, 3])
print(f"{count} nodes, {max(ranks):.6f}, {len(parts)} parts, {max(cores)}, {max(map(max, far)):g}")
