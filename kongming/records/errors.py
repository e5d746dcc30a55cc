"""Every error that KONGMING raises on purpose, and the exit status that each one means.

    KongmingError                    1  something failed while it was being done
    ├── InputError                   2  the input or the usage is wrong
    │   ├── UnknownNameError         2  a name that nothing has; the nearest ones are suggested
    │   ├── ImplausibleError         2  a number that no measurement gives
    │   ├── ApplicationFileError     2  a key of an applications file
    │   ├── MissingExtraError        2  an optional part is not installed
    │   ├── ConflictError            2  an id that stands for something else already
    │   └── IncompatibleError        2  records that must not be mixed, or a format too new
    ├── CannotAnswerError            3  the question has no honest answer
    │   ├── UntrainedError           3  nothing was measured or trained for it
    │   ├── StaleError               3  what is known of the node is too old, and may not be used
    │   └── ExtrapolationError       3  outside what was trained on, under --strict
    ├── CheckFailedError             4  measured, and a stated check failed
    ├── MeasurementError             1  a measurement could not be taken
    │   ├── ProbeError               1
    │   ├── InducerError             1
    │   └── ApplicationRunError      1
    ├── StoreError                   1  the store could not be read or written
    └── ServiceError                 1  a server could not answer
        ├── UnavailableError         1  it is away, or too slow; worth another try
        ├── OverloadedError          1  it has too much to do; worth another try later
        └── AccessError              1  it does not know the caller, or does not allow the call

Library code raises these and never exits; the command line maps ``exit_status``.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Literal, Self

AccessReason = Literal["unauthenticated", "forbidden"]

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What reading a document raises where a part of it is missing, of another kind, too deep, or a
number beyond what a float holds: JSON and TOML have integers of any length."""


class KongmingError(Exception):
    """Base of all errors. ``hint`` is the way out, in a sentence, or None."""

    exit_status = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class InputError(KongmingError):
    """Error in what the caller gave: says which field, what was found and what is allowed.
    ``problem`` is the message without the field."""

    exit_status = 2

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: object = None,
        allowed: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.problem = message
        if value is not None:
            self.problem += f" Found {value!r}."
        if allowed is not None:
            self.problem += f" Allowed: {allowed}."
        super().__init__(self._text(field), hint=hint)
        self.field = field
        self.value = value
        self.allowed = allowed

    def _text(self, field: str | None) -> str:
        return self.problem if field is None else f"{field}: {self.problem}"

    def at(self, field: str) -> Self:
        """The same error for another path of its field: that of what the record was read from."""
        error = type(self).__new__(type(self))
        error.__dict__.update(self.__dict__)
        error.field, error.message = field, self._text(field)
        error.args = (error.message,)
        return error


class UnknownNameError(InputError):
    """A name that is not known; the nearest of the ``known`` names are suggested. None: there may
    be others, which are not to be listed here."""

    def __init__(
        self, kind: str, name: str, known: Iterable[str] | None, *, hint: str | None = None
    ):
        unlisted, known = known is None, known or ()
        count = len(known if isinstance(known, Collection) else (known := tuple(known)))
        names = sorted(known) if count <= _COMPARED else []
        self.suggestions = nearest_names(name, names)
        if self.suggestions:
            way_out = "Did you mean " + " or ".join(self.suggestions) + "?"
        elif names:
            more = f" and {len(names) - 12} more" if len(names) > 12 else ""
            way_out = f"Known: {', '.join(names[:12])}{more}."
        elif count:
            way_out = f"{count} others are known."
        else:
            way_out = "" if unlisted else "There is none yet."
        super().__init__(
            f"There is no {kind} named {name!r}.",
            hint=" ".join(part for part in (way_out, hint) if part) or None,
        )
        self.kind = kind
        self.name = name


_COMPARED = 200
"""Known names among which the nearest is looked for: of more, that takes too long for a server."""

_LONGEST_COMPARED = 100


_LEAST_RATIO = 0.6
"""Names that have less in common (difflib) are no misspellings: 'init' for 'list' has half."""

_NEXT_BEST = 0.1
"""How much less than the nearest one the others may have: 'register' is not meant by 'predcit',
where 'predict' is known."""


def nearest_names(name: str, names: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Return the names that ``name`` may be a misspelling of, the nearest first; the case of
    letters counts only between names that differ in nothing else."""
    if len(name) > _LONGEST_COMPARED:
        return ()
    plain = {known: known.casefold() for known in names if len(known) <= _LONGEST_COMPARED}
    wanted = name.casefold()
    near = difflib.get_close_matches(wanted, set(plain.values()), n=most, cutoff=_LEAST_RATIO)
    if not near:
        return ()
    ratio = {other: difflib.SequenceMatcher(None, other, wanted).ratio() for other in near}
    least = ratio[near[0]] - _NEXT_BEST
    # What begins with all that was typed may be meant whatever else it has.
    suggested = [
        known
        for known, lower in plain.items()
        if lower in ratio and (ratio[lower] >= least or lower.startswith(wanted))
    ]
    suggested.sort(key=lambda known: (-ratio[plain[known]], known))
    return tuple(suggested[:most])


class ImplausibleError(InputError):
    """A record would hold a number that no measurement gives: who reports it is broken, or lies."""


class ApplicationFileError(InputError):
    """A key of an applications file is missing, unknown or of the wrong form."""


class MissingExtraError(InputError):
    """A command needs an optional part of KONGMING that is not installed."""

    def __init__(self, what: str, extra: str, missing: str) -> None:
        super().__init__(
            f"{what} needs {missing}, which is not installed.",
            hint=f"Install it with: pip install 'kongming[{extra}]'",
        )
        self.extra = extra


class IncompatibleError(InputError):
    """Records of different suites or machines would be mixed, or a format is too new to read."""


class ConflictError(InputError):
    """An id was given before, for something else: a repeated request must say the same."""


class CannotAnswerError(KongmingError):
    """The question cannot be answered honestly from what was measured."""

    exit_status = 3


class UntrainedError(CannotAnswerError):
    """No model, profile or signature exists for what was asked."""


class StaleError(CannotAnswerError):
    """The node's fingerprint is older than its time to live, and the question refuses such."""


class ExtrapolationError(CannotAnswerError):
    """The environment lies outside the training environments and --strict was given."""


class CheckFailedError(KongmingError):
    """A measurement was taken and a stated check on it failed."""

    exit_status = 4


class MeasurementError(KongmingError):
    """A measurement could not be taken."""


class ProbeError(MeasurementError):
    """The micro-benchmark binary could not be found, started or understood."""


class InducerError(MeasurementError):
    """A load inducer did not start or did not keep running."""


class ApplicationRunError(MeasurementError):
    """An application failed, hung or printed nothing that its metric matches."""


class StoreError(KongmingError):
    """The store could not be opened, read or written. ``away``: for a reason that has nothing to
    do with what was to be written, so that nothing else can be written now either."""

    away = False

    def __init__(self, message: str, *, hint: str | None = None, away: bool = False) -> None:
        super().__init__(message, hint=hint)
        if away:
            # One that came over the wire knows nothing of it.
            self.away = True


class ServiceError(KongmingError):
    """A server could not answer, for a reason that lies with it or on the way to it."""


class UnavailableError(ServiceError):
    """The server is away or did not answer in time. The same request may be repeated."""


class OverloadedError(ServiceError):
    """The server has a limit that was reached. The same request may be repeated later."""


class AccessError(ServiceError):
    """The caller is not known (``unauthenticated``) or not allowed the call (``forbidden``)."""

    def __init__(
        self, message: str, *, reason: AccessReason = "forbidden", hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
