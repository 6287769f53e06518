from made_up_results import JUDGEMENTS, RESULTS, SUBJECT, failed, timed

from bert_lightning.benchmark.case_tables import (
    accuracy_table,
    as_markdown,
    speed_table,
    tables_of,
)


def _lines(table):
    return [dict(zip(table.heads, row, strict=True)) for row in table.rows]


def test_every_timed_case_is_a_line_and_a_failed_one_says_why():
    fast = _lines(speed_table(RESULTS))[1]
    assert fast["case"] == "16-mixed, bucketed"
    assert (fast["s an epoch"], fast["samples/s"], fast["tokens/s"]) == ("10.0", "200", "4,000")
    assert (fast["padding"], fast["of peak"], fast["GiB"]) == ("20.0%", "50%", "2.00")
    assert (fast["skipped"], fast["execution"]) == ("2", "captured")
    largest, no_room = _lines(speed_table(RESULTS))[2:]
    assert (largest["case"], largest["batch"]) == ("16-mixed, padded, largest batch", "96")
    assert list(no_room.values())[:3] == ["fp32, padded, largest batch", "–", "out of memory"]


def test_what_was_not_measured_is_a_dash():
    (line,) = _lines(speed_table([timed("fp32", allocated_gib=None)]))
    assert (line["GiB"], line["Wh an epoch"]) == ("–", "–")


def test_accuracy_is_a_mean_with_its_spread_and_each_seed():
    (line,) = _lines(accuracy_table(RESULTS))
    assert (line["val accuracy"], line["spread"]) == ("91.00%", "1.41%")
    assert line["each seed"] == "90.00% 92.00%"
    assert (line["skipped steps"], line["failed"]) == ("1 1", "seed 3: interrupted")


def test_a_variant_without_a_number_is_still_a_line():
    (line,) = _lines(accuracy_table([failed("tf32", "out of memory", seed=1)]))
    assert (line["val accuracy"], line["each seed"]) == ("–", "–")


def test_empty_tables_are_left_out():
    assert [table.title for table in tables_of(RESULTS[:1], [])] == ["Speed and memory"]


def test_markdown_has_all_tables_with_as_many_cells_in_each_line():
    text = as_markdown(SUBJECT, RESULTS, JUDGEMENTS)
    assert "- **device**: Card <1>" in text
    for block in text.split("\n## ")[1:]:
        widths = {line.count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(widths) == 1
    assert "weights / dominate" in text
