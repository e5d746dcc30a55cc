"""polars_group.py ROWS: grouping, sorting and windows over columns, on one thread."""

import sys

import numpy as np
import polars as pl

rows = int(sys.argv[1])
rng = np.random.default_rng(8)
frame = pl.DataFrame(
    {
        "key": rng.integers(0, 20_000, rows),
        "kind": rng.integers(0, 50, rows),
        "value": rng.normal(size=rows),
    }
)
grouped = frame.group_by("key").agg(
    pl.len().alias("n"), pl.col("value").median().alias("median"), pl.col("kind").n_unique()
)
ordered = frame.sort("kind", "value").with_columns(
    pl.col("value").rolling_mean(50).over("kind").alias("smooth")
)
print(f"grouped {grouped['n'].sum()} rows into {len(grouped)}, {len(ordered.columns)} columns")
