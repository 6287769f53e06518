import re

from made_up_results import JUDGEMENTS, RESULTS, SUBJECT

from bert_lightning.benchmark.case_page import as_page


def test_the_page_needs_nothing_else_and_shows_letters_as_they_are():
    page = as_page(SUBJECT, RESULTS, JUDGEMENTS)
    assert not re.search(r"(src|href)=|https?:|@import", page)
    assert "<h1>Benchmark on Card &lt;1&gt;</h1>" in page
    assert "/新闻 &amp; more" in page
    assert '<meta charset="utf-8">' in page


def test_every_part_that_has_something_to_show_has_its_heading():
    heads = re.findall(r"<h2>([\w ]*)", as_page(SUBJECT, RESULTS, JUDGEMENTS))
    assert heads == [
        "Claims",
        "Seconds an epoch",
        "Peak memory",
        "Samples a second over the batch",
        "Accuracy of each seed",
        "Speed and memory",
        "Accuracy",
    ]
    assert re.findall(r"<h2>([^<]*)", as_page(SUBJECT, [], [])) == []


def test_a_claim_that_fails_stands_out_with_its_reason():
    page = as_page(SUBJECT, RESULTS, JUDGEMENTS)
    held, fell = re.findall(r'<div class="finding.*?</div>', page)
    assert held.startswith('<div class="finding"><span class="verdict holds">')
    assert fell.startswith('<div class="finding fault"><span class="verdict fails">')
    assert "weights | dominate" in fell
