"""The table that grows while a benchmark runs, with what is left of the time."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from bert_lightning.benchmark.case_tables import accuracy_table, speed_table
from bert_lightning.benchmark.cases import Case
from bert_lightning.benchmark.verdicts import Judgement
from bert_lightning.console import Console
from bert_lightning.inspection.tables import Table

Result = dict[str, Any]
FIRST_GUESS_SECONDS = 45.0  # of a case, before one is done
ONLY_IN_FILES = ("tokens/s", "padding", "GiB reserved", "Wh an epoch", "execution")
VERDICT_STYLES = {"holds": "green", "fails": "red", "open": "yellow"}


class Screen:
    """Shows each case when it is done; on a terminal a table that is drawn anew.

    Args:
        console: Where lines go.
        cases: All of them, in order.
        missing: How many are to be run.
        known: Results by key; it grows.
    """

    def __init__(
        self, console: Console, cases: Sequence[Case], missing: int, known: Mapping[str, Result]
    ) -> None:
        self.console = console
        self.cases = cases
        self.missing = missing
        self.known = known
        self.done = 0
        self._seconds: list[float] = []
        self._begun = time.monotonic()
        self._current = ""
        self._rich = RichConsole(file=sys.stdout)
        self._live = Live(console=self._rich, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        kept, total = len(self.cases) - self.missing, len(self.cases)
        earlier = f"{kept} of {total} cases are kept from an earlier call, " if kept else ""
        self.console.say(f"{earlier}{self.missing} to run")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.update("", refresh=True)
            self._live.stop()

    def begin(self, case: Case) -> None:
        """A case starts."""
        self._begun, self._current = time.monotonic(), case.key
        self.tick()

    def tick(self) -> None:
        """Show the time, where someone looks."""
        if self._live:
            rows = [self.known[case.key] for case in self.cases if case.key in self.known]
            table = rich_table(speed_table(rows))
            self._live.update(Group(table, Text(self.progress)), refresh=True)

    def end(self, case: Case) -> None:
        """A case is done, and its result known."""
        self.done += 1
        self._seconds.append(time.monotonic() - self._begun)
        if not self._live:
            self.console.say(f"{self.done}/{self.missing} {case.key}: {self._outcome(case)}")

    def _outcome(self, case: Case) -> str:
        row = self.known[case.key]
        if "reason" in row:
            return str(row["reason"])
        if case.seed is not None:
            return f"val accuracy {row['accuracy']:.2%}"
        return f"{row['samples_per_second']:,.0f} samples/s, {row['epoch_seconds']:,.1f} s an epoch"

    @property
    def progress(self) -> str:
        """What runs, since when, and what is left."""
        each = sum(self._seconds) / len(self._seconds) if self._seconds else FIRST_GUESS_SECONDS
        running = time.monotonic() - self._begun
        left = each * (self.missing - self.done - 1) + max(0.0, each - running)
        return (
            f"{self.done + 1} of {self.missing}: {self._current} · {running:.0f} s"
            f" · about {left // 60:.0f} min {left % 60:.0f} s left"
        )

    def show(self, rows: Sequence[Result], judgements: Sequence[Judgement]) -> None:
        """Show what was measured, and each claim with its verdict."""
        for table in (speed_table(rows), accuracy_table(rows)):
            if table.rows:
                self._rich.print(rich_table(table))
        for judgement in judgements:
            measured = f": {judgement.measured}" if judgement.measured else ""
            self._rich.print(
                Text(f"{judgement.verdict:<10} ", style=VERDICT_STYLES.get(judgement.verdict, "")),
                Text(f"{judgement.claim}{measured}"),
                Text(f" – {judgement.reason}" if judgement.reason else ""),
                sep="",
                soft_wrap=True,
            )


def rich_table(table: Table) -> RichTable:
    """Return a table for the terminal, of the columns that have room there."""
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    chosen = [number for number, head in enumerate(table.heads) if head not in ONLY_IN_FILES]
    for number in chosen:
        shown.add_column(table.heads[number], justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(*(Text(row[number]) for number in chosen))
    return shown
