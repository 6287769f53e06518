import re

import pytest

from bert_lightning.errors import ConfigError
from bert_lightning.plain_yaml import parse_yaml, read_yaml


def test_plain_values_come_out_with_anchors_and_merges():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: *a}\nd: [*a, null, 2e-5]\n"
    shared = {"x": 1, "y": 2}
    expected = {"a": shared, "b": {"x": 1, "y": 3}, "c": shared, "d": [shared, None, "2e-5"]}
    assert parse_yaml(text, "x") == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb: 2\na: 3\n", r"'a' stands twice.*line 3"),
        ("a:\n  b: {c: 1, c: 1}\n", "'c' stands twice.*line 2"),
        ("a: " + "[" * 51 + "]" * 51, "more than 50 levels"),
        ("a: &a [*a]\n", "more than 50 levels"),
        ("a: &a {b: *a}\n", "more than 50 levels"),
        ("a: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ("a: 2026-13-45\n", "month must be in 1..12"),
        ("a: !!int b\n", "invalid literal"),
        ("a: !!timestamp b\n", "a.yaml: expected YAML – found a fault"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_place(text, found):
    with pytest.raises(ConfigError, match=r"^a\.yaml: expected YAML") as caught:
        parse_yaml(text, "a.yaml")
    assert re.search(found, str(caught.value))


def test_anchors_may_stand_for_a_hundred_thousand_values():
    parse_yaml(f"a: &a {[0] * 900}\nb: [{', '.join(['*a'] * 100)}]\n", "x")
    with pytest.raises(ConfigError, match="anchors that stand for more than 100,000 values"):
        parse_yaml(f"a: &a {[0] * 900}\nb: [{', '.join(['*a'] * 120)}]\n", "x")


def test_a_file_of_more_than_a_mebibyte_is_not_read(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: 1\n#" + b"x" * (1 << 20))
    with pytest.raises(ConfigError, match="more than 1 MiB"):
        read_yaml(tmp_path / "a.yaml")
