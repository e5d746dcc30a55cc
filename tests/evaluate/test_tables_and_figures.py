"""The tables and figures that are made of an evaluation's document."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kongming.evaluate
from kongming.evaluate import PairMeasurement, PairPrediction, pressures, to_csv, to_markdown
from kongming.evaluate.figures import (
    error_cdf,
    error_minutes,
    heat_map,
    selection,
    sensitivity_pressure,
)
from kongming.evaluate.tables import conclusion, remarks
from kongming.records.errors import InputError, MissingExtraError, UnknownNameError
from tests.cli import evaluated
from tests.evaluate.programs import noisy, score, truth

SELECTIONS = {
    "xz": {"surrogates": ["stream.triad", "os.switch"], "observations": {"stream.triad": 4}},
    "sort": {"surrogates": ["stream.triad"], "observations": {"stream.triad": 2, "os.switch": 0}},
}


def document(repeats: int = 4, **changes: Any) -> dict[str, Any]:
    predicted = {pair: 1.1 * value for pair, value in truth().items()}
    return score(noisy(truth(), 0.05, repeats), {"LM": predicted, "auto": truth()}, **changes)


def rows_of(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_headline_has_a_row_for_each_model_and_the_truth() -> None:
    scores = document()
    rows = rows_of(to_markdown(scores))
    assert rows[0][:6] == [
        *("model", "excess", "95 % interval"),
        *("floored %", "log error %", "Spearman"),
    ]
    names = [row[0] for row in rows[1:10]]
    assert names[0] == "auto"
    assert set(names[:7]) == set(scores["all"])
    assert names[7:] == ["truth", "any partner"]
    lm = rows[1 + names.index("LM")]
    assert lm[1] == f"{scores['excess']['LM']['value']:.2f}"
    assert lm[3] == f"{scores['floored_geomean_pct']['LM']:.2f}"
    assert rows[8][1] == "0.00"


def test_the_table_of_applications_is_table_v() -> None:
    scores = document()
    rows = rows_of(to_markdown(scores))
    rows = rows[next(k for k, row in enumerate(rows) if row[0] == "application") :]
    header = ["application", "MEAN", "SOLO", "PAIRMEAN", "PAIRMEDIAN", "ROW+COL", "LM", "auto"]
    assert rows[0] == [*header, "noise floor"]
    assert [row[0] for row in rows[1:9]] == [*scores["apps"], "geo.mean", "noise floor"]
    cell = scores["table"]["xz"]["LM"]
    xz = next(row for row in rows if row[0] == "xz")
    assert xz[6] == f"{cell['median_pct']:.1f} / {cell['iqr_pct']:.1f}"
    assert rows[7][6].startswith(f"{scores['geomean_pct']['LM']:.1f} / ")
    assert rows[8][6] == f"{scores['noise_floor_pct']['geomean']:.1f}"
    assert all(len(row) == len(header) + 1 for row in rows[:9])


def test_the_conclusion_compares_with_trivial_answers_and_the_truth() -> None:
    scores = document()
    sentence = str(conclusion(scores))
    for model in ("auto", "MEAN", "SOLO"):
        assert f"({model}): {scores['all'][model]['mean_abs_log_pct']:.1f} %" in sentence
    assert sentence.endswith(f"repeats differ: {scores['truth']['mean_abs_log_pct']:.1f} %.")
    assert str(conclusion(document(repeats=1))).endswith("nothing was measured twice.")


def test_what_is_not_defined_is_a_dash() -> None:
    text = to_markdown(document(repeats=1))
    line = next(row for row in rows_of(text) if row[0] == "LM")
    assert line[1:3] == ["-", "-"]
    assert line[6:10] == ["-", "-", "-", "-"]
    assert "None" not in text
    assert "nan" not in text


def test_an_excess_without_an_upper_end_has_a_lower_one() -> None:
    """In some samples of the programs nothing is slowed beyond the noise."""
    repeats = {
        (app, other): values
        for app, values in (("a", (2.0, 2.02)), ("b", (1.01, 0.99)), ("c", (1.02, 0.98)))
        for other in "xyz"
    }
    document = score(repeats, {"LM": dict.fromkeys(repeats, 1.5)})
    low, high = document["excess"]["LM"]["interval"]
    assert low is not None
    assert high is None
    assert f"| LM | {document['excess']['LM']['value']:.2f} | {low:.2f} to inf |" in to_markdown(
        document
    )


def test_a_single_marked_repeat_of_many_is_not_called_none() -> None:
    marked = {"share": 0.004, "pairs_left": 3, "geomean_pct": {"auto": 1.5}, "noise_floor_pct": 1.0}
    assert (
        "The node visibly changed, or was disturbed, during 0.4 % of the runs. "
        "Geo.mean without them: auto 1.5 (noise floor 1.0)."
    ) in remarks(document() | {"marked": marked})


def test_the_csv_has_a_line_for_each_pair_and_model() -> None:
    scores = document()
    rows = list(csv.DictReader(io.StringIO(to_csv(scores))))
    assert len(rows) == 30 * 7
    first = scores["pairs"][0]
    mine = next(
        row
        for row in rows
        if (row["app"], row["neighbour"], row["model"]) == (first["app"], first["neighbour"], "LM")
    )
    assert float(mine["measured"]) == pytest.approx(first["measured"])
    assert float(mine["error_pct"]) == pytest.approx(first["predictions"]["LM"]["error_pct"])
    assert mine["repeats"] == "4"
    assert list(map(float, mine["repeat_values"].split())) == pytest.approx(first["repeats"])
    assert mine["lower"] == ""
    assert mine["at_least"] == "false"


def test_the_csv_has_what_coverage_is_computed_from() -> None:
    intervals = {"lower": 0.5, "upper": 2.0, "expected": (0.75, 1.5), "at_least": True}
    scores = score(noisy(truth(), 0.05, 4), {"LM": truth()}, intervals)
    mine = [row for row in csv.DictReader(io.StringIO(to_csv(scores))) if row["model"] == "LM"]
    assert len(mine) == 30
    for row in mine:
        bounds = [row[name] for name in ("lower", "upper", "expected_lower", "expected_upper")]
        assert list(map(float, bounds)) == [0.5, 2.0, 0.75, 1.5]
        assert row["at_least"] == "true"


@pytest.fixture
def light_pages() -> Iterator[None]:
    with evaluated.light_pages():
        yield


def files(folder: Path, name: str) -> tuple[Path, ...]:
    return tuple(
        folder / f"{name}-{theme}.{suffix}"
        for theme in ("light", "dark")
        for suffix in ("svg", "png")
    )


def texts(path: Path) -> str:
    """The words of an SVG; drawn as outlines, they stand next to them as comments."""
    return path.read_text()


@pytest.mark.thorough
def test_without_repeats_minutes_are_drawn_without_a_legend(tmp_path: Path) -> None:
    scores = document(repeats=1, minutes={"SOLO": 5.0, "ROW+COL": 60.0, "auto": 40.0})
    scores["measuring"] = {}
    assert error_minutes(scores, tmp_path) == files(tmp_path, "error-minutes")


def figures(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Draw all of them; returns the files by name."""
    scores = document(minutes={"SOLO": 5.0, "ROW+COL": 60.0, "auto": 40.0})
    sensitivity = dict.fromkeys(scores["apps"], 1.5)
    return {
        "error-cdf": error_cdf(scores, folder),
        "error-minutes": error_minutes(scores, folder),
        "heat-map": heat_map(scores, folder),
        "sensitivity-pressure": sensitivity_pressure(sensitivity, pressures(scores), folder),
        "selection-lm-ga": selection(SELECTIONS, folder, model="LM.GA"),
        "selection-ridge": selection(
            {"xz": {"weights": {"stream.triad": -0.5, "os.switch": 0.1}}}, folder, model="RIDGE"
        ),
    }


def check_pages(folder: Path, name: str, paths: tuple[Path, ...]) -> None:
    assert paths == files(folder, name)
    light, dark = paths[0], paths[2]
    assert "#ffffff" in texts(light)
    assert "#15191e" in texts(dark)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths if path.suffix == ".png")


@pytest.mark.thorough
def test_a_figure_is_written_for_light_and_dark_pages(tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    check_pages(folder, "error-cdf", error_cdf(document(), folder))


@pytest.mark.thorough
def test_each_figure_is_written_for_light_and_dark_pages(tmp_path: Path) -> None:
    for name, paths in figures(tmp_path).items():
        check_pages(tmp_path, name, paths)


@pytest.mark.usefixtures("light_pages")
def test_each_figure_has_its_words(tmp_path: Path) -> None:
    written = figures(tmp_path)
    for name, paths in written.items():
        assert paths == (tmp_path / f"{name}-light.svg",)
    for app in document()["apps"]:
        assert f"<!-- {app} -->" in texts(written["heat-map"][0])
        assert f"<!-- {app} -->" in texts(written["sensitivity-pressure"][0])
    assert "<!-- auto" in texts(written["error-cdf"][0])
    assert "<!-- n x n pairs -->" in texts(written["error-minutes"][0])
    assert "<!-- stream.triad -->" in texts(written["selection-lm-ga"][0])


@pytest.mark.thorough
def test_the_same_document_gives_the_same_files(tmp_path: Path) -> None:
    scores = document()
    first = [path.read_bytes() for path in error_cdf(scores, tmp_path / "1")]
    assert [path.read_bytes() for path in error_cdf(scores, tmp_path / "2")] == first


@pytest.mark.usefixtures("light_pages")
def test_labels_keep_off_each_other(tmp_path: Path) -> None:
    """Points in one spot get their names in different places."""
    spots = {f"program-{k}": 1.2 for k in range(5)}
    path = sensitivity_pressure(spots, spots, tmp_path)[0]
    lines = texts(path).splitlines()
    places = {lines[number + 1] for number, line in enumerate(lines) if "<!-- program-" in line} | {
        lines[number + 2] for number, line in enumerate(lines) if "<!-- program-" in line
    }
    assert len([place for place in places if "translate" in place]) == len(spots)


@pytest.mark.thorough
def test_a_single_pair_can_be_drawn(tmp_path: Path) -> None:
    scores = score({("a", "b"): (1.5,)}, {"auto": {("a", "b"): 1.5}})
    assert len(error_cdf(scores, tmp_path)) == 4
    assert len(heat_map(scores, tmp_path)) == 4
    assert len(sensitivity_pressure({"b": 1.0}, pressures(scores), tmp_path)) == 4


def test_figures_say_what_they_lack(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="LM"):
        heat_map(document(), tmp_path, model="LN")
    with pytest.raises(InputError, match="sensitivity"):
        sensitivity_pressure({"a": 1.0}, {"b": 1.0}, tmp_path)
    with pytest.raises(InputError, match="minutes"):
        error_minutes(document(), tmp_path)
    with pytest.raises(InputError, match="selections"):
        selection({"a": {"surrogates": []}}, tmp_path, model="LM.GA")


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"kongming\[plots\]"):
        error_cdf(document(), tmp_path)


def test_scoring_loads_no_plots_and_no_models() -> None:
    code = (
        "import sys, kongming.evaluate, kongming.evaluate.figures;"
        "print([m for m in ('matplotlib', 'sklearn', 'lightgbm', 'deap', 'sqlalchemy', 'click')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_there_and_explained() -> None:
    names = kongming.evaluate.__all__
    assert names == sorted(names)
    for name in names:
        if name != "Scored":
            assert getattr(kongming.evaluate, name).__doc__


def test_a_bar_in_a_name_does_not_break_the_table() -> None:
    text = to_markdown(score({("a|b", "c"): (1.0,)}, {}, solo={"a|b": 1.0}))
    assert "a\\|b" in text


def test_records_can_be_compared() -> None:
    assert PairMeasurement("a", "b", (1.0,)) == PairMeasurement("a", "b", (1.0,))
    assert PairPrediction("a", "b", "LM", 1.0) != PairPrediction("a", "b", "LM", 2.0)
