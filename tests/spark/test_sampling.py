"""Strata and the chi-square test of a sample, and the command around the job."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from kongming.spark.sampling.job import _settings
from kongming.spark.sampling.strata import (
    SIGNIFICANT,
    Clusters,
    chi_square_tail,
    distinct_edges,
    frequent,
    pearson,
    significance_of_each,
)
from kongming.spark.written_values import size_bytes
from tests.conftest import Kongming


@pytest.mark.parametrize("freedom", [1, 2, 7, 40, 300])
def test_the_tail_of_chi_square(freedom: int) -> None:
    for statistic in (0.01, 0.5 * freedom, freedom, 1.5 * freedom, 3.0 * freedom + 10):
        expected = float(stats.chi2.sf(statistic, freedom))
        assert chi_square_tail(statistic, freedom) == pytest.approx(expected, rel=1e-8)


def test_the_test_rejects_a_biased_sample_and_as_often_as_said_a_fair_one() -> None:
    random = np.random.default_rng(0)
    full = {f"b{k}": count for k, count in enumerate((5000, 3000, 1500, 400, 100))}
    rejected = 0
    for _ in range(400):
        drawn = random.multivariate_hypergeometric(list(full.values()), 2000)
        rejected += pearson(full, dict(zip(full, drawn.tolist(), strict=True)))[2] < 0.05
    assert 0.02 <= rejected / 400 <= 0.09
    biased = {"b0": 1100, "b1": 560, "b2": 260, "b3": 60, "b4": 20}
    assert pearson(full, biased)[2] < 1e-4
    exact = {name: count // 5 for name, count in full.items()}
    assert pearson(full, exact)[2] == pytest.approx(1.0)


def test_a_fair_sample_of_alike_groups_is_rejected_as_often_as_said() -> None:
    """Orders of one to seven items, whose dates lie within a month of each other."""
    random = np.random.default_rng(1)
    orders = 4000
    sizes = random.integers(1, 8, orders)
    month = random.integers(0, 12, orders)
    items = np.zeros((orders, 12))
    for order in range(orders):
        for later in random.integers(0, 2, sizes[order]):
            items[order, (month[order] + later) % 12] += 1
    full = {f"b{k}": int(count) for k, count in enumerate(items.sum(axis=0))}
    rejected, naive, biased = 0, 0, 0
    draws = 300
    for _ in range(draws):
        drawn = items[random.uniform(size=orders) < 0.1]

        def p_value(drawn: np.ndarray, *, grouped: bool = True) -> float:
            counts = {f"b{k}": int(count) for k, count in enumerate(drawn.sum(axis=0))}
            all_rows = drawn.sum(axis=1, keepdims=True)
            clusters = Clusters(
                {f"b{k}": float(v) for k, v in enumerate((drawn**2).sum(axis=0))},
                {f"b{k}": float(v) for k, v in enumerate((drawn * all_rows).sum(axis=0))},
            )
            return pearson(full, counts, clusters if grouped else None)[2]

        rejected += p_value(drawn) < 0.05
        naive += p_value(drawn, grouped=False) < 0.05
        # Of half of the orders of the first four months.
        early = drawn[:, :4].sum(axis=1) > 0
        biased += p_value(drawn[~early | (random.uniform(size=len(drawn)) < 0.5)]) < 0.05
    assert 0.01 <= rejected / draws <= 0.10
    assert naive / draws > 0.5
    assert biased / draws > 0.9


def test_a_few_large_groups_are_no_sample_of_the_rest() -> None:
    """A region is drawn with all of its rows or not at all."""
    full = {"north": 3000, "south": 2500, "east": 2500, "west": 2000}
    squares = {"north": 3000.0**2}
    assert pearson(full, {"north": 3000}, Clusters(squares, squares))[2] < 1e-9


def test_groups_of_single_rows_have_no_design_effect() -> None:
    shares = {"a": 0.7, "b": 0.2, "c": 0.1}
    counts = {"a": 70.0, "b": 20.0, "c": 10.0}
    assert Clusters(counts, counts).design_effect(shares, 100) == pytest.approx(1.0)
    doubled = {name: 2.0 * count for name, count in counts.items()}
    assert Clusters(doubled, doubled).design_effect(shares, 100) == pytest.approx(2.0)
    assert Clusters({}, {}).design_effect({"a": 1.0}, 10) == 1.0


def test_rare_bins_are_put_together_and_everything_is_not_tested() -> None:
    full = {"a": 1000, **{f"rare{k}": 2 for k in range(50)}}
    _, freedom, _ = pearson(full, {"a": 100, "rare0": 1})
    assert freedom == 1
    assert pearson(full, full) == (0.0, 0, 1.0)


def test_tests_of_one_sample_refuse_a_fair_one_seldom_however_many_they_are() -> None:
    assert significance_of_each(1, 1) == SIGNIFICANT
    for tests in (2, 4, 20):
        least = significance_of_each(tests, 1)
        assert 0.95 <= (1.0 - least) ** tests < 0.952
        # Where another sample is drawn instead, each test is as strict as one alone.
        assert significance_of_each(tests, 5) == SIGNIFICANT


def test_ties_share_a_bucket_and_rare_categories_the_last() -> None:
    assert distinct_edges([1.0, 5.0, 5.0, 5.0, 9.0]) == [1.0, 5.0, 9.0]
    counts = {"a": 50, "b": 30, "c": 2, "d": 1}
    assert frequent(counts, 3) == ["a", "b"]
    assert frequent(counts, 4) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8g", 8 << 30),
        ("1024", 1024 << 20),
        ("1024b", 1024),
        ("16KB", 16 << 10),
        ("inf", None),
        ("b", None),
        ("", None),
    ],
)
def test_sizes_as_spark_writes_them(text: str, size: int | None) -> None:
    assert size_bytes(text) == size


def test_the_settings_leave_a_file_to_a_task() -> None:
    assert set(_settings(70_000).values()) == {"70000"}
    assert set(_settings(0).values()) == {"1"}  # a file without a byte is no setting


def _submit(folder: Path, report: dict[str, object]) -> str:
    """A spark-submit that reports at once."""
    script = folder / "submit"
    script.write_text(
        "#!/usr/bin/env python3\nimport json, sys\nrequest = json.load(open(sys.argv[2]))\n"
        f"json.dump({{**{report!r}, 'request': request}}, open(request['report'], 'w'))\n"
    )
    script.chmod(0o755)
    return str(script)


def test_the_command_asks_the_job_and_tells_of_failed_tests(
    kongming: Kongming, tmp_path: Path
) -> None:
    test = {"name": "k", "kind": "numeric", "buckets": 5, "chi_square": 30.0, "p": 0.001}
    report: dict[str, object] = {
        "passed": True,
        "attempts": 1,
        "rows": 40,
        "sampled": 2,
        "ratio": 0.05,
        "partitions": 4,
        "files": 2,
        "strata": 3,
        "conf": {"spark.x": "1"},
        "keys": [test],
        "strata_test": {**test, "name": "strata", "p": 0.5},
    }
    args = ("spark", "sample", "in", "--out", "o", "--keys", "a, b", "--ratio", "5%", "--json")
    done = kongming(*args, "--submit", _submit(tmp_path, report))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    request = document["request"]
    assert document["conf"] == {"spark.x": "1", "spark.kongming.sample.ratio": "0.05"}
    assert (request["keys"], request["ratio"]) == (["a", "b"], 0.05)
    assert "not the time on all data" in json.loads(done.stdout)["meaning"]
    text = kongming(*args[:-1], "--submit", _submit(tmp_path, report)).stdout
    assert "2 of 40 rows (5.0 %) of 2 partitions" in text
    assert "The table is read in 4 partitions" in text
    assert "not the time on all data" in text.replace("\n", " ")
    failed = kongming(*args, "--submit", _submit(tmp_path, {**report, "passed": False}))
    assert failed.returncode == 4
    assert "differs from the table in k" in failed.stderr
    assert "Take fewer keys" in failed.stderr
    joined = ("--join-key", "k", "--submit", _submit(tmp_path, {**report, "passed": False}))
    failed = kongming(*args, *joined)
    assert failed.returncode == 4
    assert "After 1 attempt the sample differs" in failed.stderr
    assert "with another --seed" in failed.stderr
    refused = kongming(
        *args, "--submit", _submit(tmp_path, {"error": "Column 'a' is text.", "hint": "Others."})
    )
    assert refused.returncode == 2
    empty = {**report, "passed": False, "sampled": 0}
    failed = kongming(*args, "--submit", _submit(tmp_path, empty))
    assert failed.returncode == 4
    assert "the sample has none of 40 rows" in failed.stderr


@pytest.mark.parametrize("submit", ["spark-submit 'a", " "])
def test_a_submit_that_is_no_command(submit: str, kongming: Kongming) -> None:
    refused = kongming("spark", "sample", "in", "--out", "o", "--submit", submit)
    assert refused.returncode == 2
    assert "--submit: is" in refused.stderr


def test_a_job_that_fails_without_a_word(kongming: Kongming) -> None:
    failed = kongming("spark", "sample", "in", "--out", "o", "--submit", "sh -c 'exit 3'")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "(exit 3): it printed nothing" in failed.stderr
