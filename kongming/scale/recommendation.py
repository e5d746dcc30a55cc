"""Which machines, and how many: the cheapest that meets a deadline, the fastest within a budget.

Ernest (NSDI 2016), sections 4.1, 6.3 and 6.4; with the probability of keeping to the limit, since a
prediction has an error.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kongming.errors import CannotAnswerError, InputError
from kongming.scale.model import ScaleModel, ScalePrediction
from kongming.scale.points import Configuration

__all__ = ["Offer", "Prices", "curve", "read_prices", "recommend"]

Prices = Mapping[str | None, float]
"""Money per machine and hour, by machine type; None: of any type."""

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine count of a type: how long, at what cost (None without a price), and the
    ``probability`` of keeping to the limit that was asked for (None without one)."""

    machine_type: str | None
    prediction: ScalePrediction
    cost: float | None
    probability: float | None = None

    @property
    def machines(self) -> int:
        return int(self.prediction.at.machines)


def read_prices(path: str | Path) -> Prices:
    """A CSV with columns ``type`` and ``price`` (money per machine and hour); a table of one type
    may leave ``type`` out.

    Raises:
        InputError: it cannot be read, or a price is no number above 0 (with its row).
    """
    file = Path(path)
    try:
        rows = list(csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.", field="--prices") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} is no CSV: {error}.", field="--prices") from error
    found: dict[str | None, float] = {}
    for number, row in enumerate(rows, 1):
        text = (row.get("price") or "").strip()
        try:
            price = float(text)
        except ValueError:
            price = math.nan
        if not math.isfinite(price) or price <= 0.0:
            raise InputError(
                "is no price.",
                field=f"{file}: row {number}, column 'price'",
                found=text,
                allowed="a number above 0: money per machine and hour",
            )
        name = (row.get("type") or "").strip() or None
        if name in found:
            raise InputError("is there twice.", field=f"{file}: row {number}, column 'type'")
        found[name] = price
    if not found:
        raise InputError(f"{file} has no row.", field="--prices", allowed="type,price")
    return found


def curve(
    models: Sequence[ScaleModel],
    counts: Sequence[int],
    *,
    scale: float = 1.0,
    iterations: float | None = None,
    prices: Prices | None = None,
    level: float = 0.9,
) -> tuple[list[Offer], list[str]]:
    """Every machine count of every type, and a sentence for those that cannot be answered.

    Raises:
        InputError: a machine type without a price.
    """
    offers, refused = [], []
    for model in models:
        price = None if prices is None else _price(prices, model.machine_type)
        for count in counts:
            try:
                prediction = model.predict(
                    Configuration(float(count), scale), iterations=iterations, level=level
                )
            except CannotAnswerError as error:
                refused.append(error.message)
                continue
            hours = count * prediction.median / HOUR_S
            offers.append(
                Offer(model.machine_type, prediction, None if price is None else price * hours)
            )
    return offers, refused


def recommend(
    models: Sequence[ScaleModel],
    offers: Sequence[Offer],
    *,
    prices: Prices,
    deadline_s: float | None = None,
    budget: float | None = None,
    risk: float = 0.95,
) -> tuple[Offer | None, Offer | None, list[Offer]]:
    """(the best that keeps the limit, the likeliest to keep it, all with their probability).

    With ``deadline_s`` the cheapest offer that ends in time with probability ``risk`` or more;
    with ``budget`` the fastest that costs no more than that with that probability. The first is
    None where there is none. Among equals, fewer machines.

    Raises:
        InputError: not exactly one limit, or one out of range.
    """
    if (deadline_s is None) == (budget is None):
        raise InputError("Give a deadline or a budget: --deadline SECONDS or --budget MONEY.")
    limit = deadline_s if deadline_s is not None else budget
    assert limit is not None
    name = "--deadline" if deadline_s is not None else "--budget"
    if not (math.isfinite(limit) and limit > 0.0):
        raise InputError("is out of range.", field=name, found=limit, allowed="above 0")
    if not 0.0 < risk < 1.0:
        raise InputError("is out of range.", field="--risk", found=risk, allowed="between 0 and 1")
    by_type = {model.machine_type: model for model in models}
    judged = []
    for offer in offers:
        seconds = limit
        if budget is not None:
            seconds = limit / _price(prices, offer.machine_type) / offer.machines * HOUR_S
        chance = by_type[offer.machine_type].probability(offer.prediction, seconds)
        judged.append(Offer(offer.machine_type, offer.prediction, offer.cost, chance))
    if not judged:
        return None, None, judged
    kept = [offer for offer in judged if _chance(offer) >= risk]

    def order(offer: Offer) -> tuple[float, float]:
        first = offer.cost if deadline_s is not None else offer.prediction.median
        assert first is not None
        # Costs that agree to the last digits are one cost.
        return float(f"{first:.9g}"), offer.machines

    likeliest = max(judged, key=lambda offer: (_chance(offer), -offer.machines))
    return (min(kept, key=order) if kept else None), likeliest, judged


def _chance(offer: Offer) -> float:
    assert offer.probability is not None
    return offer.probability


def _price(prices: Prices, machine_type: str | None) -> float:
    if machine_type in prices:
        return prices[machine_type]
    if machine_type is None and len(prices) == 1:
        return next(iter(prices.values()))
    if None in prices:
        return prices[None]
    raise InputError(
        "has no price.",
        field="--prices",
        found=machine_type,
        hint="A row of the file for each machine type: type,price",
    )
