"""Writes exported usage events to standard output, or to a file; returns only when they are on the disk."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from reconverge.errors import InvalidSetting
from reconverge.hub.usage import UsageEvent
from reconverge.usage.events import cloud_event, csv_lines, json_lines

STANDARD: Final = "-"
CLOUDEVENTS: Final = "cloudevents"
JSONL: Final = "jsonl"


class Output:
    """Writes usage events, one a line, as "cloudevents", "jsonl" or "csv": to a file, or to standard output.

    Its `with` block raises InvalidSetting if the file cannot be opened.
    """

    def __init__(self, to: str, form: str, namespace: str) -> None:
        self._to = to
        self._form = form
        self._namespace = namespace
        self._file: TextIO = sys.stdout
        self._header = form not in (CLOUDEVENTS, JSONL)

    def __enter__(self) -> Self:
        if self._to != STANDARD:
            try:
                self._file = Path(self._to).open("a", encoding="utf-8")
            except OSError as error:
                raise InvalidSetting(
                    "to", self._to, f"cannot be written: {error.strerror}; choose another path"
                ) from None
            self._header = self._header and self._file.tell() == 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not sys.stdout:
            with contextlib.suppress(OSError):  # each write is on the disk by then, or has failed
                self._file.close()

    def write(self, events: Sequence[UsageEvent]) -> None:
        """Writes events, and makes sure that they are on the disk. Raises InvalidSetting if that fails."""
        try:
            self._file.write(self._text(events))
            self._file.flush()
            if self._file is not sys.stdout:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise InvalidSetting("to", self._to, f"cannot be written: {error.strerror}; choose another path") from None
        self._header = False

    def _text(self, events: Sequence[UsageEvent]) -> str:
        if self._form == CLOUDEVENTS:
            return "".join(json.dumps(cloud_event(self._namespace, event)) + "\n" for event in events)
        if self._form == JSONL:
            return json_lines(self._namespace, events)
        return csv_lines(self._namespace, events, header=self._header)
