"""An inspection → the few lines that a fit begins with."""

from __future__ import annotations

from bert_lightning.inspection.results import Inspection


def short_form(inspection: Inspection) -> list[str]:
    """Return up to six lines: repeats, leaks, lengths, names; the whole is for ``inspect``."""
    leak_lines = [
        f"titles of {pair.second} that stand in train too: {pair.by_key:,} –"
        " data.drop_leaked: true leaves them out of train"
        for pair in inspection.shared
        if pair.first == "train" and pair.by_key
    ]
    return [_repeats(inspection), *leak_lines, *_pieces(inspection), *_wrong_names(inspection)]


def _repeats(inspection: Inspection) -> str:
    counts = {split: s.repeats.by_key for split, s in inspection.splits.items()}
    shown = ", ".join(f"{split} {count:,}" for split, count in counts.items() if count)
    return f"titles that stand again in their split: {shown or 'none'}"


def _pieces(inspection: Inspection) -> list[str]:
    counts = [(s.rows, s.pieces) for s in inspection.splits.values() if s.pieces]
    if not counts or not inspection.tokens:
        return []
    rows = sum(count for count, _ in counts)
    cut = sum(pieces.truncated for _, pieces in counts)
    unknown = sum(pieces.unknown_rows for _, pieces in counts)
    words = [f"{cut / rows:.2%} of rows cut at data.max_length {inspection.tokens.max_length}"]
    waste = next((pieces.padding_waste for _, pieces in counts), None)
    if waste is not None:
        words.append(f"{waste:.1%} padding in batches of {next(iter(inspection.splits))}")
    words.append(f"{unknown / rows:.1%} of rows hold an [UNK]")
    return [", ".join(words)]


def _wrong_names(inspection: Inspection) -> list[str]:
    wrong = [f"{name.name} is likely {name.likely}" for name in inspection.wrong_names]
    if not wrong:
        return []
    more = f" … and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
    return [f"class names likely wrong: {', '.join(wrong[:3])}{more} – see data.class_names"]
