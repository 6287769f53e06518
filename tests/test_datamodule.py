from bert_lightning.datamodule import resolve_data_path


def test_a_dataset_of_the_hub_keeps_its_name():
    assert resolve_data_path("hf://owner/news:small") == ("hf://owner/news:small", None)


def test_a_path_is_made_absolute_and_the_built_in_corpus_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_data_path("news") == (str(tmp_path / "news"), None)
    assert resolve_data_path("builtin") == ("builtin", None)
