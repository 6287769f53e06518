"""Results and judgements → one HTML page that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bert_lightning.benchmark.case_plots import (
    STYLE,
    accuracy_strips,
    batch_key,
    batch_plot,
    epoch_bars,
    memory_bars,
)
from bert_lightning.benchmark.case_tables import accuracy_table, speed_table
from bert_lightning.benchmark.verdicts import Judgement
from bert_lightning.inspection.page import html_page, html_table, safe

Result = dict[str, Any]


def as_page(
    subject: Mapping[str, str], results: Sequence[Result], judgements: Sequence[Judgement]
) -> str:
    """Return the page as HTML."""
    title = f"Benchmark on {safe(subject['device'])}"
    tables = [speed_table(results), accuracy_table(results)]
    body = [
        f"<h1>{title}</h1>",
        *(f"<p class=soft>{safe(name)}: {safe(text)}</p>" for name, text in subject.items()),
        *(["<h2>Claims</h2>"] if judgements else []),
        *(_judgement(judgement) for judgement in judgements),
        _figure("Seconds an epoch", epoch_bars(results)),
        _figure("Peak memory", memory_bars(results)),
        _figure("Samples a second over the batch", batch_plot(results), batch_key(results)),
        _figure("Accuracy of each seed; the stroke is their mean", accuracy_strips(results)),
        *(html_table(table) for table in tables if table.rows),
    ]
    return html_page(title, body, STYLE)


def _judgement(judgement: Judgement) -> str:
    kind = " fault" if judgement.verdict == "fails" else ""
    reason = f"<p class=soft>{safe(judgement.reason)}</p>" if judgement.reason else ""
    verdict = f'<span class="verdict {judgement.verdict}">{judgement.verdict}</span>'
    measured = f"<p>{safe(judgement.measured)}</p>" if judgement.measured else ""
    return f'<div class="finding{kind}">{verdict} · {safe(judgement.claim)}{measured}{reason}</div>'


def _figure(title: str, plot: str, key: str = "") -> str:
    if not plot:
        return ""
    caption = f"<figcaption>{key}</figcaption>" if key else ""
    return f"<h2>{safe(title)}</h2><figure>{plot}{caption}</figure>"
