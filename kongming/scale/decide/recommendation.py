"""Recommend machine types and counts: the cheapest that meets a deadline, or the fastest within a
budget.

Ernest (NSDI 2016), sections 4.1, 6.3 and 6.4; with the probability of keeping the limit, since
predictions have errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kongming.files.csv_rows import read_rows
from kongming.records.errors import CannotAnswerError, InputError, nearest_names
from kongming.scale.fit.model import SLACK, ScaleModel, ScalePrediction
from kongming.scale.points import Configuration

Prices = Mapping[str | None, float]
"""Money per machine and hour, by machine type; None: of the only type."""

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine count of a type: predicted runtime, cost (None without a price), and the
    ``probability`` of keeping the requested limit (None without one)."""

    machine_type: str | None
    prediction: ScalePrediction
    cost: float | None
    probability: float | None = None

    @property
    def machines(self) -> int:
        return int(self.prediction.at.machines)


def read_prices(path: str | Path, types: Sequence[str | None] = ()) -> Prices:
    """Read a CSV with columns ``type`` and ``price`` (money per machine and hour). ``types`` are
    the machine types of the model: for several of them the table has a row for each, for a single
    type it may be one row without ``type``.

    Raises:
        InputError: the file cannot be read, a column or a type is missing, or a price is not a
            number above 0 (with its row).
    """
    file = Path(path)
    prices: dict[str | None, float] = {}
    columns = "type (not needed for one type) and price (money per machine and hour)"
    several = len(set(types)) > 1
    required = ("type", "price") if several else ("price",)
    hints = {"type": f"The types of the model are {', '.join(map(str, types))}."}
    for row in read_rows(file, required, columns=columns, hints=hints):
        price = row.number_in("price", above=True)
        name = row.name("type") if several else row.text("type") or None
        if "type" not in row.places and prices:
            raise InputError(
                "is a second row without a type.",
                field=f"{file}: row {row.number} (line {row.line})",
                hint=f"The columns of the file are {', '.join(row.places)}; a column type tells "
                "the rows apart.",
            )
        if name in prices:
            raise InputError("is there twice.", field=row.where("type"), value=name)
        prices[name] = price
    if not prices:
        raise InputError(f"{file} has no rows.", field="--prices", allowed="type,price")
    return prices


def curve(
    models: Sequence[ScaleModel],
    counts: Sequence[int],
    *,
    scale: float = 1.0,
    iterations: float | None = None,
    prices: Prices | None = None,
    level: float = 0.9,
) -> tuple[list[Offer], list[str]]:
    """Predict every machine count of every type; also return a message for each count that the
    model cannot predict.

    Raises:
        InputError: a machine type has no price.
    """
    offers, failures = [], []
    single = len({model.machine_type for model in models}) == 1
    for model in models:
        price = None if prices is None else _price(prices, model.machine_type, single=single)
        for count in counts:
            try:
                prediction = model.predict(
                    Configuration(float(count), scale), iterations=iterations, level=level
                )
            except CannotAnswerError as error:
                failures.append(error.message)
                continue
            hours = count * prediction.median / HOUR_S
            offers.append(
                Offer(model.machine_type, prediction, None if price is None else price * hours)
            )
    return offers, failures


def recommend(
    models: Sequence[ScaleModel],
    offers: Sequence[Offer],
    *,
    prices: Prices,
    deadline_s: float | None = None,
    budget: float | None = None,
    risk: float = 0.95,
) -> tuple[Offer | None, Offer | None, list[Offer]]:
    """Return the best offer that keeps the limit, the offer most likely to keep it, and all offers
    with their probability.

    With ``deadline_s`` the best is the cheapest offer that ends in time with probability ``risk``
    or more; with ``budget`` the fastest that stays within it with that probability. The best is
    None if no offer qualifies. Ties go to fewer machines. Fewer machines than were ever run (in
    the context, if it was run at several counts) are not advised, as their memory may not suffice;
    the likeliest is among them if all offers are. A type that never ran at several
    counts in the context needs as many as every other type had there.

    Raises:
        InputError: not exactly one limit is given, or a value is out of range.
    """
    if (deadline_s is None) == (budget is None):
        raise InputError("Give a deadline or a budget: --deadline SECONDS or --budget MONEY.")
    limit = deadline_s if deadline_s is not None else budget
    assert limit is not None
    name = "--deadline" if deadline_s is not None else "--budget"
    if not (math.isfinite(limit) and limit > 0.0):
        raise InputError("is out of range.", field=name, value=limit, allowed="above 0")
    if not 0.0 < risk < 1.0:
        raise InputError("is out of range.", field="--risk", value=risk, allowed="between 0 and 1")
    by_type = {model.machine_type: model for model in models}
    single = len(by_type) == 1
    rated = []
    for offer in offers:
        seconds = limit
        if budget is not None:
            price = _price(prices, offer.machine_type, single=single)
            seconds = limit / price / offer.machines * HOUR_S
        chance = by_type[offer.machine_type].probability(offer.prediction, seconds)
        rated.append(Offer(offer.machine_type, offer.prediction, offer.cost, chance))
    if not rated:
        return None, None, rated
    fewest = _fewest_machines(models)
    run = [offer for offer in rated if offer.machines >= fewest[offer.machine_type] * (1.0 - SLACK)]
    qualified = [offer for offer in run if _chance(offer) >= risk]

    def order(offer: Offer) -> tuple[float, float]:
        first = offer.cost if deadline_s is not None else offer.prediction.median
        assert first is not None
        # Rounded, so that rounding errors do not decide between equal costs.
        return float(f"{first:.9g}"), offer.machines

    likeliest = max(run or rated, key=lambda offer: (_chance(offer), -offer.machines))
    return (min(qualified, key=order) if qualified else None), likeliest, rated


def _fewest_machines(models: Sequence[ScaleModel]) -> Mapping[str | None, float]:
    """Return the fewest machines of each type that may be advised. What other inputs needed limits
    a type no less than what other types needed for this one."""
    own = [model.fewest_machines for model in models if model.fewest_machines is not None]
    fewest = {}
    for model in models:
        known = model.fewest_machines
        least = max([model.ranges.machines[0], *own]) if known is None else known
        fewest[model.machine_type] = least
    return fewest


def _chance(offer: Offer) -> float:
    assert offer.probability is not None
    return offer.probability


def _price(prices: Prices, machine_type: str | None, *, single: bool) -> float:
    """Return the price of a type. A price without a type, or the only price where the model has no
    types, counts if the model is of a ``single`` type."""
    if machine_type in prices:
        return prices[machine_type]
    if single and None in prices:
        return prices[None]
    if machine_type is None and len(prices) == 1:
        return next(iter(prices.values()))
    named = [str(name) for name in prices if name is not None]
    near = nearest_names(str(machine_type), named)
    raise InputError(
        "The table has several types, and the model none."
        if machine_type is None
        else f"There is no price of the machine type {machine_type!r}.",
        field="--prices",
        value=", ".join(named) or None,
        hint="Give a file with one row, the price of its machines."
        if machine_type is None
        else f"Did you mean {near[0]}?"
        if near
        else "The file needs a row for each machine type: type,price",
    )
