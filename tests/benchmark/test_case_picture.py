from made_up_results import RESULTS, failed, timed
from matplotlib.image import imread

from bert_lightning.benchmark.case_picture import write_picture


def test_the_picture_grows_with_its_cases_and_has_memory_where_it_was_measured(tmp_path):
    few, many, cpu = (tmp_path / f"{name}.png" for name in ("few", "many", "cpu"))
    write_picture(few, "Card", RESULTS[:1])
    write_picture(many, "Card", RESULTS)
    write_picture(cpu, "cpu", [timed("fp32", allocated_gib=None)])
    height, width = imread(few).shape[:2]
    assert imread(many).shape[0] > height
    assert imread(cpu).shape[1] < width
    assert imread(many)[..., :3].min() < 0.5


def test_there_is_no_picture_of_nothing(tmp_path):
    write_picture(tmp_path / "none.png", "Card", [failed("fp32", "out of memory")])
    assert not list(tmp_path.iterdir())
