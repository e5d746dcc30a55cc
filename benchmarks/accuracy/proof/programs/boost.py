"""boost.py TREES: trees boosted on 200,000 rows of 24 columns, on one thread."""

import sys

import numpy as np
import xgboost

count = int(sys.argv[1])
rng = np.random.default_rng(17)
rows = rng.normal(size=(200_000, 24)).astype("f4")
target = np.sin(2 * rows[:, 0]) * rows[:, 1] + np.abs(rows[:, 2]) + rng.normal(0, 0.3, len(rows))
data = xgboost.DMatrix(rows, target, nthread=1)
settings = {"max_depth": 6, "eta": 0.2, "tree_method": "hist", "nthread": 1, "seed": 0}
model = xgboost.train(settings, data, num_boost_round=count)
error = float(np.std(model.predict(data) - target))
print(f"{count} trees, {error:.4f}")
