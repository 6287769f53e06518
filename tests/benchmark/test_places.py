import pytest

from bert_lightning.benchmark.places import without_places


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fit --data.path /home/me/news", "fit --data.path news"),
        ("--model.pretrained=/data/base/", "--model.pretrained=base/"),
        ('{"model": {"pretrained": "/a/b"}}', '{"model": {"pretrained": "b"}}'),
        ("~/news C:/news/a", "news a"),
        ("train 5 samples/s, runs/1/x, hf/model, https://a.b/c/d", None),
    ],
)
def test_of_an_absolute_path_its_name_is_left(text, expected):
    assert without_places(text) == (expected or text)
