"""Price of an executor for an hour: by a table, or without any by the executor or the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kongming.quantities import count as counted

if TYPE_CHECKING:
    from kongming.spark.estimation import Price


@dataclass(frozen=True)
class Pricing:
    """``unit`` of the costs; ``warnings`` say what they are where no price is given."""

    price: Price
    unit: str
    warnings: tuple[str, ...] = ()


def pricing_of(path: Path | None, cores: Sequence[int]) -> Pricing:
    """Prices of executors with these numbers of cores, from a table or without any."""
    if path is not None:
        return _from_table(path, cores)
    if len(cores) == 1:
        warning = "without --prices an executor costs 1 an hour: costs are executor-hours"
        return Pricing(1.0, "executor-hours", (warning,))
    # One of 16 cores is no cheaper than 16 of one.
    warning = "without --prices a core costs 1 an hour: costs are core-hours"
    return Pricing({each: float(each) for each in cores}, "core-hours", (warning,))


def _from_table(path: Path, cores: Sequence[int]) -> Pricing:
    from kongming.records.errors import InputError
    from kongming.scale.decide.recommendation import read_prices

    prices = read_prices(path)
    if any(name is not None and name.isdecimal() for name in prices):
        absent = [each for each in cores if str(each) not in prices]
        if absent:
            raise InputError(
                f"{path} has no price of executors of {counted(absent[0], 'core')}.",
                field="--prices",
                value=", ".join(str(name) for name in prices),
                allowed="a row for each number of cores, with that as its type",
            )
        return Pricing({each: prices[str(each)] for each in cores}, "cost")
    names = [name for name in (None, "executor") if name in prices]
    if len(prices) > 1 and not names:
        raise InputError(
            f"{path} has several types.",
            field="--prices",
            value=", ".join(str(name) for name in prices),
            hint="Give one row, or name the row of this cluster's executors 'executor', or the "
            "rows by the cores of an executor, as 4.",
        )
    price = prices[names[0]] if names else next(iter(prices.values()))
    if len(cores) == 1:
        return Pricing(price, "cost")
    warning = (
        f"an executor of {cores[-1]} cores costs as much as one of {cores[0]} here: --prices may "
        "have a row for each number of cores, with that as its type"
    )
    return Pricing(price, "cost", (warning,))
