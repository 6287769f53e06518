import pytest

from bert_lightning.data.keys import normalised


@pytest.mark.parametrize(
    "other",
    [
        pytest.param("组图：首页新闻", id="picture prefix"),
        pytest.param("图文：首页新闻", id="prefix with a colon"),
        pytest.param("图文-首页新闻", id="prefix with a dash"),
        pytest.param("首页新闻（组图）", id="picture mark"),
        pytest.param("首页新闻(组图)(12)", id="second mark: the twelfth page"),
        pytest.param("首页　新闻！", id="blank and punctuation"),
    ],
)
def test_marks_of_an_editor_do_not_make_another_headline(other):
    assert normalised(other) == normalised("首页新闻")


@pytest.mark.parametrize("other", ["首页新闻(2012)", "首页新闻3", "新闻图文"])
def test_other_numbers_and_words_do(other):
    assert normalised(other) != normalised("首页新闻")
