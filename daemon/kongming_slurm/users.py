"""Users of this machine, by name or number."""

from __future__ import annotations

import pwd
from collections.abc import Iterable

from kongming.records.errors import InputError


def user_numbers(field: str, users: Iterable[str]) -> tuple[int, ...]:
    """The numbers of users, as Slurm has them.

    Raises:
        InputError: there is no such user; ``field`` names the setting.
    """
    numbers = []
    for user in users:
        try:
            is_number = user.isascii() and user.isdigit()
            numbers.append(int(user) if is_number else pwd.getpwnam(user).pw_uid)
        except KeyError:
            raise InputError(
                "is no user of this machine.", field=field, value=user, allowed="a name or a number"
            ) from None
    return tuple(numbers)
