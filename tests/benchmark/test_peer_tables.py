from bert_lightning.benchmark.peer_tables import as_markdown

ENVIRONMENT = {"device": "card A", "torch": "2.11.0"}


def trained(cell, rate, gib=2.0, **more):
    return {
        "group": "headlines-32",
        "cell": cell,
        "environment": ENVIRONMENT,
        "call": "first",
        "samples_per_second": rate,
        "pieces_per_second": rate * 21,
        "repeats": [rate],
        "steps": 400,
        "seconds": 1.25,
        "allocated_gib": gib,
        "reserved_gib": 3.0,
        "first_step_seconds": 9.5,
        **more,
    }


def cells_of(text, name):
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_rows_stand_beside_the_first_one_of_their_group():
    # the other order on purpose: results are stored as they are measured
    text = as_markdown([trained("ours-16-mixed", 6000, 1.0), trained("trainer-fp16", 1000)])
    assert cells_of(text, "trainer-fp16")[:4] == ["trainer-fp16", "1,000", "1.00", "21,000"]
    assert cells_of(text, "ours-16-mixed")[:4] == ["ours-16-mixed", "6,000", "6.00", "126,000"]
    assert cells_of(text, "ours-16-mixed")[8] == "0.50"
    assert text.index("trainer-fp16 |") < text.index("ours-16-mixed |")
    assert "### Training, batch 32, headlines" in text
    assert "device card A, torch 2.11.0" in text
    assert "calls" not in text


def test_without_the_first_row_there_is_no_ratio():
    failed = {k: trained("trainer-fp16", 1)[k] for k in ("group", "cell", "environment", "call")}
    text = as_markdown([trained("loop-fp16", 700), {**failed, "reason": "out of memory"}])
    assert cells_of(text, "loop-fp16")[1:3] == ["700", "–"]
    row = cells_of(text, "trainer-fp16")
    assert row[1] == "out of memory"
    assert len(row) == len(cells_of(text, "cell"))


def test_rows_of_several_calls_are_told_from_those_of_one():
    text = as_markdown([trained("trainer-fp16", 1), trained("loop-fp16", 1, call="second")])
    assert "Measured in 2 calls" in text


def test_each_machine_has_its_own_tables():
    other = trained("trainer-fp16", 500, environment={"device": "card B", "torch": "2.11.0"})
    text = as_markdown([trained("trainer-fp16", 1000), trained("loop-fp16", 2000), other])
    first, second = text.split("## card B")
    assert "2.00" in first
    assert cells_of(second, "trainer-fp16")[1:3] == ["500", "1.00"]


def test_predictions_have_columns_of_their_own():
    row = {
        "group": "prediction-256",
        "cell": "ours-16-mixed",
        "environment": ENVIRONMENT,
        "call": "first",
        "titles": 50_000,
        "samples_per_second": 15_000.0,
        "total_samples_per_second": 2_500.0,
        "loop_samples_per_second": 40_000.0,
        "allocated_gib": None,
        "reserved_gib": None,
    }
    peer = {**row, "cell": "pipeline-fp16", "samples_per_second": 3_000.0}
    del peer["loop_samples_per_second"]
    text = as_markdown([row, peer])
    assert cells_of(text, "ours-16-mixed")[1:6] == ["15,000", "5.00", "2,500", "40,000", "50,000"]
    assert cells_of(text, "pipeline-fp16")[4] == "–"
