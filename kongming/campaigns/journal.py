"""The records of unfinished campaigns, a file of JSON lines for each key in one folder.

The agent keeps them because its spool drops delivered records. A store with the same folder
(``journaled_store``) takes over the agent's records, and the agent those of the store. The first
line of a file is the campaign, every other one a record and who measured it; after kill -9 an
incomplete last line is one run that is measured again. A program that measured the whole campaign
removes the file at its end; otherwise it marks the file, so that the other program can take over
the records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.files.line_file import LineFile
from kongming.records.errors import MALFORMED, IncompatibleError, InputError, StoreError
from kongming.records.run import Run, Signature

FORMAT = 1
"""Version of the format of the lines."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One campaign of the journal."""

    id: str
    document: Mapping[str, Any]
    finished: bool


class CampaignBusyError(InputError):
    """Another command measures the campaign, or the node, at this moment."""


class Journal:
    """The file of one campaign in ``folder``, open and locked. ``by`` names the writer: agent or
    store.

    Raises:
        CampaignBusyError: another command measures this campaign now.
        IncompatibleError: the file was written by a newer version.
        StoreError: it cannot be created.
    """

    def __init__(self, folder: Path, key: str, *, by: str) -> None:
        self.path = folder / f"{key}.jsonl"
        self._by = by
        self.entry: JournalEntry | None = None
        self._records: list[tuple[str, Run | Signature]] = []
        try:
            # What is measured tells of users and their programs.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder} cannot be created: {error.strerror}.") from error
        try:
            self._lines = LineFile(self.path, private=True)
        except OSError as error:
            raise CampaignBusyError(
                "Another command measures this campaign now.", hint="Wait until it has ended."
            ) from error
        try:
            self._read()
        except BaseException:
            self._lines.close()
            raise
        self.close = self._lines.close

    @property
    def records(self) -> list[Run | Signature]:
        """Return all records of the campaign, in order."""
        return [record for _, record in self._records]

    def begin(self, campaign_id: str, document: Mapping[str, Any]) -> JournalEntry:
        """Begin a campaign; this replaces the contents of the file."""
        self._lines.file.truncate(0)
        self._records = []
        self.entry = JournalEntry(campaign_id, dict(document), finished=False)
        self._write({"campaign": campaign_id, "format": FORMAT, "document": dict(document)})
        return self.entry

    def add(self, record: Run | Signature) -> None:
        """Append a record. Raises StoreError."""
        kind = "run" if isinstance(record, Run) else "signature"
        self._write({"by": self._by, kind: record.to_dict()})
        self._records.append((self._by, record))

    def finish(self) -> None:
        """Remove the file, or mark it if another program measured a part and has not seen the
        end.
        """
        shared = any(by != self._by for by, _ in self._records)
        if shared and self.entry is not None and not self.entry.finished:
            self._write({"finished": True})
        else:
            self.entry, self._records = None, []
            self.path.unlink(missing_ok=True)

    def _write(self, line: Mapping[str, Any]) -> None:
        self._lines.append(line)
        self._lines.sync()

    def _read(self) -> None:
        self._lines.remove_incomplete_line()
        self._lines.file.seek(0)
        for number, text in enumerate(self._lines.file.read().splitlines()):
            try:
                self._take(json.loads(text), number)
            except MALFORMED as error:
                raise IncompatibleError(
                    f"{self.path}: line {number + 1} is not a line of a campaign's journal.",
                    hint="Remove the file to start the campaign again.",
                ) from error

    def _take(self, line: Mapping[str, Any], number: int) -> None:
        if number == 0:
            if line["format"] > FORMAT:
                raise IncompatibleError(
                    f"{self.path} has version {line['format']}; this one reads up to {FORMAT}."
                )
            self.entry = JournalEntry(line["campaign"], line["document"], finished=False)
        elif line.get("finished"):
            assert self.entry is not None
            self.entry = JournalEntry(self.entry.id, self.entry.document, finished=True)
        elif "run" in line:
            self._records.append((line["by"], Run.from_dict(line["run"])))
        else:
            self._records.append((line["by"], Signature.from_dict(line["signature"])))
