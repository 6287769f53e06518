"""An inspection → one HTML page that opens without a network.

Everything is inline; whatever comes from the data is escaped. Bars are table cells, so that 120
class names find room under each other on a phone as on a wide screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bert_lightning.errors import SHOWN_PROBLEMS
from bert_lightning.inspection.plots import length_plot, share_plot
from bert_lightning.inspection.results import Finding, Inspection, TokenSurvey
from bert_lightning.inspection.screen import printable
from bert_lightning.inspection.tables import Table, all_tables

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c1f24; --soft: #5b6470; --line: #d9dee5;
  --one: #2f6fb3; --two: #c2571a; --fault: #b3261e; --panel: #f5f7fa; }
@media (prefers-color-scheme: dark) { :root { --back: #15181d; --text: #e6e9ee; --soft: #9aa4b1;
  --line: #333a44; --one: #6aa9ea; --two: #f0995b; --fault: #ff8a80; --panel: #1d2128; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1100px; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "PingFang SC",
  "Microsoft YaHei", "Noto Sans CJK SC", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4em; margin: 0 0 4px; } h2 { font-size: 1.1em; margin: 28px 0 8px; }
p { margin: 4px 0; } .soft, figcaption { color: var(--soft); }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: 3px 10px 3px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } td { font-variant-numeric: tabular-nums; }
.wide td, .wide th { white-space: nowrap; }
.bars { width: 100%; table-layout: fixed; } .bars th:first-child { width: 34%; }
.bars i { display: block; height: 7px; min-width: 1px;
  background: var(--one); border-radius: 2px; }
.finding { background: var(--panel); border-left: 4px solid var(--one); padding: 8px 12px;
  margin: 10px 0; } .fault { border-color: var(--fault); } .fault b { color: var(--fault); }
.finding ul { margin: 4px 0 0; padding-left: 18px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(340px, 100%), 1fr));
  gap: 20px; } figure { margin: 0; } svg { width: 100%; max-width: 540px; display: block; }
svg text { fill: var(--soft); font-size: 11.5px; } .grid { stroke: var(--line); }
.fill1 { fill: var(--one); } polyline { fill: none; stroke-width: 2; }
.line1 { stroke: var(--one); } .line2 { stroke: var(--two); }
.chosen, .advised { stroke: var(--text); stroke-width: 1.5; stroke-dasharray: 6 3; }
.advised { stroke-dasharray: 1.5 3; } .key1 { color: var(--one); } .key2 { color: var(--two); }
.matrix td { text-align: center; min-width: 64px; padding: 8px; border: 1px solid var(--line); }
.leaky { background: color-mix(in srgb, var(--fault) 28%, transparent); }
"""


def as_page(inspection: Inspection) -> str:
    """Return the page as HTML."""
    name = safe(inspection.name)
    faults = len(inspection.faults)
    body = [
        f"<h1>{name}</h1>",
        f"<p class=soft>{faults:,} faults, {len(inspection.findings) - faults:,} notes</p>",
        *(_finding(finding) for finding in inspection.findings),
        _class_bars(inspection),
        _leak_matrix(inspection),
        *(_token_plots(inspection.tokens) if inspection.tokens else []),
        *(html_table(t) for t in all_tables(inspection) if t.title != "Rows of each class"),
    ]
    return html_page(name, body)


def html_page(title: str, body: Sequence[str], style: str = "") -> str:
    """Return a page that needs nothing but itself.

    Args:
        title: Of its window, already escaped.
        body: Parts in HTML; empty ones are left out.
        style: CSS beside `STYLE`.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}{style}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def safe(text: str) -> str:
    """Return text as HTML shows it, letter by letter."""
    return escape(printable(text))


def _finding(finding: Finding) -> str:
    items = "".join(f"<li>{safe(example)}</li>" for example in finding.shown)
    shut = f"<details><summary>examples</summary><ul>{items}</ul></details>" if items else ""
    return (
        f'<div class="finding {finding.severity}"><b>{finding.severity} {finding.code}</b>'
        f"<p>{safe(finding.message)}</p><p class=soft>{safe(finding.remedy)}</p>{shut}</div>"
    )


def _bars(heads: Sequence[str], rows: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Return a table of counts with a bar over each, as long as its share of the column's most."""
    most = [max(1, *(counts[i] for _, counts in rows)) for i in range(len(heads) - 1)]
    head = "".join(f"<th>{safe(cell)}</th>" for cell in heads)
    lines = [
        f"<tr><td>{safe(name)}</td>"
        + "".join(
            f'<td><i style="width:{100 * count / top:.1f}%"></i>{count:,}</td>'
            for count, top in zip(counts, most, strict=True)
        )
        + "</tr>"
        for name, counts in rows
    ]
    return f"<table class=bars><tr>{head}</tr>{''.join(lines)}</table>"


def _class_bars(inspection: Inspection) -> str:
    splits = inspection.splits.values()
    rows = [(name, [split.class_rows[name] for split in splits]) for name in inspection.class_names]
    if not rows:
        return ""
    heads = ["class", *(f"{split} ({s.rows:,})" for split, s in inspection.splits.items())]
    return f"<h2>Rows of each class</h2>{_bars(heads, rows)}"


def _leak_matrix(inspection: Inspection) -> str:
    splits = list(inspection.splits)
    if len(splits) < 2:
        return ""
    counts = {(pair.first, pair.second): pair for pair in inspection.shared}
    lines = []
    for first in splits:
        cells = []
        for second in splits:
            pair = counts.get((first, second)) or counts.get((second, first))
            style = " class=leaky" if pair and pair.by_key else ""
            shown = f"{pair.exact:,} / {pair.by_key:,}" if pair else "–"
            cells.append(f"<td{style}>{shown}</td>")
        lines.append(f"<tr><th>{first}</th>{''.join(cells)}</tr>")
    head = "".join(f"<th>{split}</th>" for split in splits)
    return (
        "<h2>The same title in two splits</h2><p class=soft>to the letter / by what is left without"
        " case, blanks, punctuation and editors' marks</p>"
        f"<table class=matrix><tr><th></th>{head}</tr>{''.join(lines)}</table>"
    )


def _token_plots(tokens: TokenSurvey) -> list[str]:
    markers = {"chosen": tokens.max_length, "advised": tokens.advised_max_length}
    key = f"dashed: data.max_length {tokens.max_length}; dotted: advised {markers['advised']}"
    lengths = [point.max_length for point in tokens.curve]
    lines = {"line1": [point.truncated for point in tokens.curve]}
    names = ["<span class=key1>rows cut</span>"]
    waste = [p.padding_waste for p in tokens.curve if p.padding_waste is not None]
    if len(waste) == len(lengths):
        lines["line2"] = waste
        names.append("<span class=key2>padding in batches</span>")
    figures = [
        length_plot("Rows by pieces", tokens.histogram, markers),
        f"<figcaption>Rows by length; {key}</figcaption>",
        share_plot("Shares by max_length", lengths, lines, markers),
        f"<figcaption>{', '.join(names)}; {key}</figcaption>",
    ]
    parts = [
        "<h2>Lengths and max_length</h2>",
        f"<div class=plots><figure>{figures[0]}{figures[1]}</figure>"
        f"<figure>{figures[2]}{figures[3]}</figure></div>",
    ]
    unknown = [(token.text, [token.count]) for token in tokens.unknown_tokens[:SHOWN_PROBLEMS]]
    if unknown:
        examined = f"in {tokens.unknown_rows_examined:,} rows with an [UNK]"
        parts += ["<h2>What became [UNK]</h2>", _bars(["token", examined], unknown)]
    return parts


def html_table(table: Table) -> str:
    """Return a heading and a table that scrolls by itself where it is too wide."""
    head = "".join(f"<th>{safe(cell)}</th>" for cell in table.heads)
    rows = "".join(
        f"<tr>{''.join(f'<td>{safe(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    return f"<h2>{safe(table.title)}</h2><div class=wide><table><tr>{head}</tr>{rows}</table></div>"
