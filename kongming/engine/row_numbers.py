"""Rows of a matrix that keys take and give back."""

from __future__ import annotations


class RowNumbers:
    """Small numbers from 1 for keys; 0 stands for whatever has no key."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], int] = {}
        self._free: list[int] = []
        self._next = 1

    @property
    def greatest(self) -> int:
        return self._next - 1

    def take(self, key: tuple[object, ...]) -> int:
        if key not in self._by_key:
            if self._free:
                self._by_key[key] = self._free.pop()
            else:
                self._by_key[key] = self._next
                self._next += 1
        return self._by_key[key]

    def give_back(self, key: tuple[object, ...]) -> int | None:
        row = self._by_key.pop(key, None)
        if row is not None:
            self._free.append(row)
        return row
