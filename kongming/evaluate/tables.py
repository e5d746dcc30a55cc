"""Render an evaluation's document as Markdown (the paper's Tables IV and V) and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kongming.learning.registry import AUTO
from kongming.quantities import format_percent, per_cent

Document = Mapping[str, Any]

Table = tuple[list[str], list[list[str]]]
"""Headings, and rows of as many cells."""

_PAIRS = (
    "Median / inter-quartile range of |predicted - measured| / measured, in per cent, over an "
    "application's partners. Measured is the geometric mean of {repeats} repeats."
)
_NODES = (
    "Median / inter-quartile range of |predicted - measured| / measured, in per cent, over an "
    "application's runs, each in an environment that was not trained on."
)
_LEGEND = (
    "geo.mean: over applications; floored: no application's error below its noise floor, the error "
    "of a perfect predictor, from the spread of the repeats."
)
_EXCESS = (
    "Excess: squared log error over SOLO's, with the variance of what was measured taken off both "
    "(0: the truth, 1: no better than the solo time); 95 % interval over {clusters}."
)
_TRIVIAL = {
    "pairs": (
        "MEAN: mean over the training runs. SOLO: the solo time. AWAKE: the solo time, shorter "
        "next to a busy CPU for a program that waits. PAIRMEAN, PAIRMEDIAN: of the application's "
        "measured pairs; ROW+COL: effects of application and partner, additive in logs; the scored "
        "pair left out. Minutes: measuring that a predictor of all these pairs needs."
    ),
    "nodes": "MEAN: mean over the runs in the other environments. SOLO: the solo time.",
}
_SKILL = (
    "Skill (secondary): (geo.mean - floor) / ({trivial}'s geo.mean - floor); 0: the error equals "
    "the noise floor, 1: no better than {trivial}."
)
_ALL = (
    "Log error: mean of |ln(predicted / measured)|. Spearman: within an application. Heavy: mean "
    "error on pairs slowed by more than 1.25; quiet: mean log error on those slowed by 1.05 at the "
    "most. Regret: the loss with each application's best predicted partner against the fastest one "
    "of a round. One round of repeats names, the others score. Truth: what a predictor would score "
    "that knows every pair's true mean."
)


def to_markdown(document: Document) -> str:
    """Render tables with applications as rows, models as columns, and cells "median / IQR".

    A second table has the figures over all pairs or runs. Synthetic environments follow separately.
    """
    kind = document["kind"]
    parts = [f"# {title(document)}", _grid(*overall(document, kind)), _grid(*accuracy(document))]
    parts += remarks(document)
    caption = _PAIRS.format(repeats=_repeats(document)) if kind == "pairs" else _NODES
    clusters = "victims and pressers" if kind == "pairs" else "applications and environments"
    legend = [_EXCESS.format(clusters=clusters), caption, _LEGEND, _TRIVIAL[kind]]
    legend.append(_SKILL.format(trivial="PAIRMEDIAN" if kind == "pairs" else "MEAN"))
    if kind == "pairs":
        legend.append(_ALL)
    parts.append("\n".join(f"- {line}" for line in legend))
    if document.get("synthetic"):
        block = document["synthetic"]
        parts += [
            "## Synthetic environments",
            _grid(*overall(block, kind)),
            _grid(*accuracy(block)),
        ]
        parts += remarks(block)
    return "\n\n".join(parts) + "\n"


def _repeats(document: Document) -> str:
    counts = [len(pair["repeats"]) for pair in document["pairs"]]
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def to_csv(document: Document) -> str:
    """Render a line per case and model: predicted and measured cost, error, interval.

    A case is a pair, or a run in an environment. Undefined cells are empty; the costs of a pair's
    repeats are separated by spaces.
    """
    pairs = document["kind"] == "pairs"
    cases = document["pairs"] if pairs else document["scored_runs"]
    names = ["app", "neighbour"] if pairs else ["app", "environment", "kind", "synthetic", "run"]
    case_columns = ["repeats", "standard_error_pct", "repeat_values"] if pairs else ["marked"]
    prediction_columns = ["error_pct", "lower", "upper", "level", "extrapolating", "at_least"]
    expected_columns = ["expected_lower", "expected_upper"] if pairs else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = [*names, "model", "predicted", "measured", "slowdown"]
    writer.writerow([*header, *case_columns, *prediction_columns, *expected_columns])
    for case in cases:
        cells = [case["marked"]]
        if pairs:
            values = " ".join(str(_plain(value)) for value in case["repeats"])
            cells = [len(case["repeats"]), case["standard_error_pct"], values]
        for model, prediction in case["predictions"].items():
            row = [case[name] for name in names]
            row += [model, prediction["value"], case["measured"], case["slowdown"], *cells]
            row += [prediction[name] for name in prediction_columns]
            if pairs:
                row += prediction["expected"] or (None, None)
            writer.writerow(map(_plain, row))
    return text.getvalue()


def title(document: Document) -> str:
    """One-line title of the evaluation."""
    if document["kind"] == "pairs":
        return (
            f"Pairs, {document['placement']}: {len(document['pairs'])} ordered pairs of "
            f"{len(document['apps'])} applications"
        )
    return (
        f"Environments: {len(document['apps'])} applications in "
        f"{len(document['environments'])} environments"
    )


def conclusion(block: Document) -> str | None:
    """Compare the mean error of the model that predictions use with those of trivial answers and
    of the truth; None without one."""

    def error(model: str) -> float | None:
        figures: float | None = block["all"].get(model, {}).get("mean_abs_log_pct")
        return figures

    if (own := error(AUTO)) is None:
        return None
    text = f"Mean error of the predictions ({AUTO}): {per_cent(own)}"
    for model, meaning in (
        ("MEAN", "of always predicting the mean of the training runs"),
        ("SOLO", "of saying that nothing slows"),
    ):
        if (other := error(model)) is not None:
            text += f"; {meaning} ({model}): {per_cent(other)}"
    truth = block["truth"]["mean_abs_log_pct"]
    if truth is not None:
        return f"{text}; of a perfect prediction, since repeats differ: {per_cent(truth)}."
    return f"{text}. That of a perfect prediction is not known: nothing was measured twice."


def accuracy(block: Document, models: Sequence[str] | None = None) -> Table:
    """Columns and rows of the table of errors: applications, then geo.mean and noise floor.

    ``models``: those to show; default: all.
    """
    models = [model for model in block["geomean_pct"] if models is None or model in models]
    floors = block["noise_floor_pct"]
    rows = [
        [
            app,
            *(_both(cells[model]["median_pct"], cells[model]["iqr_pct"]) for model in models),
            _number(floors["per_app"][app]),
        ]
        for app, cells in block["table"].items()
    ]
    floor = _number(floors["geomean"])
    means = [_both(block["geomean_pct"][m], block["geomean_iqr_pct"][m]) for m in models]
    rows.append(["geo.mean", *means, floor])
    rows.append(["noise floor", *[floor] * len(models), floor])
    return ["application", *models, "noise floor"], rows


def overall(block: Document, kind: str) -> Table:
    """Columns and rows of the figures over all pairs or runs: one row per model, best first."""
    pairs = kind == "pairs"
    columns = ["model", "excess", "95 % interval", "floored %", "log error %", "Spearman"]
    columns += ["heavy %", "quiet %", "regret %", "minutes"] if pairs else ["ratio to MEAN"]
    columns.append("skill")
    rows = []
    for model in sorted(block["all"], key=lambda model: _rank(block, model)):
        figures, beyond = block["all"][model], block["excess"][model]
        row = [model, _number(beyond["value"], 2), _range(beyond["interval"])]
        row += [_number(block["floored_geomean_pct"][model], 2)]
        row += [_number(figures["mean_abs_log_pct"]), _number(figures["spearman"], 2)]
        if pairs:
            row += [_number(figures[name]) for name in _NAMED]
            row.append(_number(block["minutes"][model], 0))
        else:
            row.append(_number(block["ratio_to_mean"][model]["value"], 2))
        rows.append([*row, _number(block["skill"][model]["value"], 2)])
    truth = block["truth"]
    row = ["truth", "0.00", "-", _number(truth["geomean_pct"], 2)]
    row += [_number(truth["mean_abs_log_pct"]), "-"]
    row += [*(_number(truth[name]) for name in _NAMED), "-"] if pairs else ["-"]
    rows.append([*row, "0.00"])
    if pairs:
        regret = _number(block["random_regret_pct"])
        rows.append(["any partner", *["-"] * 7, regret, "-", "-"])
    return columns, rows


_NAMED = ("heavy_pct", "quiet_pct", "regret_pct")
"""Figures over pairs that one round names and the others score."""


def _rank(block: Document, model: str) -> tuple[float, float]:
    value, error = block["excess"][model]["value"], block["floored_geomean_pct"][model]
    return tuple(math.inf if figure is None else figure for figure in (value, error))  # type: ignore[return-value]


def remarks(block: Document) -> list[str]:
    """Sentences on noise, coverage, marked runs, coupling and missing predictions."""
    sentences = []
    if block.get("preregistered"):
        sentences.append(_preregistered(block["preregistered"]))
    noise = block["noise"]
    if noise["too_noisy"]:
        sentences.append(
            f"Too noisy to compare models: {per_cent(100 * noise['share_of_solo'], '.0f')} of "
            "SOLO's squared "
            "error is the noise of what was measured (30 % at the most would do)."
        )
    elif noise["too_noisy"] is None:
        sentences.append(
            "The noise is not known, so that there is no excess: no case was measured twice "
            "(--repeats 2 or more)."
        )
    coverage = block["coverage"]
    for kind, costs in (
        ("run", "single runs"),
        ("expected", "means of repeats, less what their own error explains"),
    ):
        figures = coverage.get(kind)
        if figures is None or figures["actual"] is None:
            continue
        inside = per_cent(100 * figures["actual"], ".0f")
        low, high = figures["interval"]
        if low is not None and high is not None:
            inside += f" ({100 * low:.0f} to {per_cent(100 * high, '.0f')})"
        sentences.append(
            f"`{kind}` intervals of auto at {per_cent(100 * coverage['level'], '.0f')}, over "
            f"{costs}: {inside} lie within, median width {_percent(figures['median_width_pct'])}."
        )
        # Not in documents of an earlier version.
        if (open_ := figures.get("at_least")) and open_["n"]:
            sentences.append(
                f'Of these, {open_["n"]} are of predictions that say "at least": '
                f"{open_['above']} lie above the computed end, which is none, and count as held; "
                f"{open_['below']} lie below the lower end and count as missed."
            )
    if coverage.get("extrapolating") is not None:
        sentences.append(
            f"Outside the training runs: {per_cent(100 * coverage['extrapolating'], '.0f')} of "
            "auto's "
            'predictions; at their edge ("at least"): '
            f"{per_cent(100 * coverage['at_edge'], '.0f')}."
        )
    marked = block["marked"]
    if marked is not None and marked["share"] > 0:
        errors = ", ".join(
            f"{model} {_number(value)}"
            for model, value in marked["geomean_pct"].items()
            if value is not None
        )
        # Marks of pairs are of the controls as well.
        others = ", or was disturbed," if block.get("kind") == "pairs" else ""
        share = format_percent(marked["share"])
        sentence = f"The node visibly changed{others} during {share} of the runs."
        if errors:
            floor = _number(marked["noise_floor_pct"])
            sentence += f" Geo.mean without them: {errors} (noise floor {floor})."
        sentences.append(sentence)
    if block.get("coupling"):
        sentences += _coupling(block["coupling"])
    if block.get("unmeasured"):
        names = ", ".join(f"{app} next to {other}" for app, other in block["unmeasured"])
        sentences.append(f"Not scored, as every repeat failed: {names}.")
    if block["unpredicted"]:
        missing = ", ".join(f"{model} {n}" for model, n in block["unpredicted"].items())
        sentences.append(f"Not scored, as there is no prediction: {missing}.")
    return sentences


def _preregistered(statement: Document) -> str:
    text = f"Pre-registered {statement['written_at']}, sha256 {statement['sha256']}"
    if not statement["before_first_run"]:
        text += ", AFTER the first run"
    changed = ", ".join(statement["code_changed"])
    return f"{text}; code changed since in: {changed}." if changed else f"{text}; same code."


def _coupling(section: Document) -> list[str]:
    """Sentences on the coupling of pairs and profiles, and the errors by it."""

    def summary(part: Document | None) -> str:
        if part is None:
            return "not measured"
        return f"{part['median']:.2f} ({part['low']:.2f} to {part['high']:.2f}, {part['n']} read)"

    sentences = [
        "Coupling (times that a stream on the neighbour's CPU slows a pointer chase), median and "
        f"range: pairs {summary(section['pairs'])}; profiles {summary(section['profiles'])}."
    ]
    if section["explained"] is not None:
        sentences.append(
            f"It explains {per_cent(100 * section['explained'], '.0f')} of the variance of a "
            "pair's repeats."
        )
    for stratum in section["strata"]:
        errors = ", ".join(f"{name} {_number(e)}" for name, e in stratum["error_pct"].items())
        sentences.append(
            f"At a coupling of {stratum['low']:.2f} to {stratum['high']:.2f}: {stratum['pairs']} "
            f"pairs, slowed {stratum['slowdown']:.2f} times on average; log error in %: {errors}."
        )
    sentences += [
        f"Warning: {app} was profiled at a coupling of {medians['profile']:.2f}, its pairs were "
        f"run at {medians['pairs']:.2f}: the profile was made on a machine that couples otherwise."
        for app, medians in section["unlike"].items()
    ]
    return sentences


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join(["---", *["---:"] * (len(columns) - 1)]) + "|"
    return "\n".join([line(columns), rule, *map(line, rows)])


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else per_cent(value)


def _both(middle: float | None, spread: float | None) -> str:
    return "-" if middle is None else f"{_number(middle)} / {_number(spread)}"


def _range(interval: Sequence[float | None]) -> str:
    low, high = interval
    if low is None:
        return "-"
    # JSON has no infinity: an end that is missing while the other one is known is infinite.
    return f"{low:.2f} to {'inf' if high is None else f'{high:.2f}'}"


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.9g}" if isinstance(value, float) else value
