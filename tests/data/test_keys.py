import pytest

from bert_lightning.data.keys import key_of, normalised


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


@pytest.mark.parametrize(
    "copy",
    [
        pytest.param("雪豹队 3-1 逆转，AB夺冠！", id="as it is"),
        pytest.param("雪豹队3-1逆转，AB夺冠！", id="no blanks"),
        pytest.param("雪豹队\u30003-1\u00a0逆转 AB夺冠", id="other blanks"),
        pytest.param("雪豹队 ３－１ 逆转,ａｂ夺冠!", id="full width and case"),
        pytest.param("组图:雪豹队 3-1 逆转，AB夺冠！", id="picture prefix"),
        pytest.param("图文-雪豹队 3-1 逆转，AB夺冠！", id="other picture prefix"),
        pytest.param("雪豹队 3-1 逆转，AB夺冠！（图）", id="picture mark"),
        pytest.param("“雪豹队” 3-1 逆转，AB夺冠(组图)", id="quotes"),
    ],
)
def test_copies_of_one_headline_have_one_key(copy):
    assert normalised(copy) == "雪豹队31逆转ab夺冠"


@pytest.mark.parametrize("other", ["雪豹队32逆转ab夺冠", "图雪豹队31逆转ab夺冠", "31逆转"])
def test_other_headlines_have_other_keys(other):
    assert normalised(other) != "雪豹队31逆转ab夺冠"


def test_keys_are_signed_64_bit_numbers(headlines):
    keys = [key_of(title) for title, _ in headlines]
    assert len(set(keys)) == len(headlines)
    assert min(keys) < 0 < max(keys)
    assert all(-(2**63) <= key < 2**63 for key in keys)
