import subprocess
import sys

import pytest

from bert_lightning.data.records import SPLITS
from bert_lightning.demo.mini_bert import (
    SPECIAL_TOKENS,
    mini_config,
    mini_tokenizer,
    mini_vocabulary,
)
from bert_lightning.demo.news import made_up_news


@pytest.fixture(scope="module")
def tokenizer():
    return mini_tokenizer()


def test_the_vocabulary_starts_with_the_special_tokens():
    assert (
        tuple(mini_vocabulary()[:5])
        == SPECIAL_TOKENS
        == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    )


def test_no_token_comes_twice():
    assert len(set(mini_vocabulary())) == len(mini_vocabulary())


def test_the_vocabulary_covers_all_ideographs_of_gb2312():
    covered = {token for token in mini_vocabulary() if "\u4e00" <= token <= "\u9fff"}
    expected = set()
    for code in range(0x4E00, 0xA000):
        try:
            chr(code).encode("gb2312")
        except UnicodeEncodeError:
            continue
        expected.add(chr(code))
    assert len(expected) == 6_763
    assert covered == expected


def test_the_vocabulary_covers_the_signs_of_headlines():
    signs = set("“”‘’—…·《》【】（）：；，。！？、％＋") | {chr(code) for code in range(0x21, 0x7F)}
    assert {sign.lower() for sign in signs} <= set(mini_vocabulary())


def test_the_tokenizer_knows_the_whole_vocabulary(tokenizer):
    assert len(tokenizer) == tokenizer.vocab_size == len(mini_vocabulary())
    assert tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))) == mini_vocabulary()
    assert tokenizer.model_max_length == 512


def test_titles_become_characters_between_cls_and_sep(tokenizer):
    ids = tokenizer("苹果发布新款iPhone").input_ids
    expected = [*"苹果发布新款", "i", *(f"##{letter}" for letter in "phone")]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", *expected, "[SEP]"]


@pytest.mark.parametrize(
    "text",
    [
        "“深海”行动：8.5折…3×4厘米￥599 ＡＢ２",
        "".join(chr(code) for code in range(0x21, 0x7F)),
        "a×b c＋d 5℃ Ⅱ代 ～～ ·—–•",
    ],
)
def test_signs_inside_words_are_known(tokenizer, text):
    assert tokenizer.unk_token_id not in tokenizer(text).input_ids


def test_no_title_of_the_corpus_holds_an_unknown_token(tokenizer):
    titles = [record.text for split in SPLITS for record in made_up_news(split)]
    ids = tokenizer(titles).input_ids
    assert not any(tokenizer.unk_token_id in row for row in ids)
    assert max(map(len, ids)) <= 32  # 30 characters, [CLS] and [SEP]


def test_a_saved_tokenizer_gives_the_same_ids(tokenizer, tmp_path):
    from transformers import AutoTokenizer, BertTokenizer

    tokenizer.save_pretrained(tmp_path)
    titles = [record.text for record in made_up_news("test")]
    for kind in (BertTokenizer, AutoTokenizer):
        loaded = kind.from_pretrained(tmp_path)
        assert loaded(titles).input_ids == tokenizer(titles).input_ids
        assert loaded.model_max_length == 512


def test_the_shape_fits_the_vocabulary_and_the_classes():
    config = mini_config(num_labels=4)
    assert config.vocab_size == len(mini_vocabulary())
    assert config.num_labels == len(config.id2label) == 4
    assert config.pad_token_id == 0
    assert config.max_position_embeddings == 512
    assert config.hidden_size % config.num_attention_heads == 0


def test_a_saved_shape_comes_back(tmp_path):
    from transformers import BertConfig

    mini_config(4).save_pretrained(tmp_path)
    assert BertConfig.from_pretrained(tmp_path).to_dict() == mini_config(4).to_dict()


def test_a_model_of_that_shape_takes_the_tokenizers_batches(tokenizer):
    import torch
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification(mini_config(4))
    records = made_up_news("val")[:4]
    batch = tokenizer([record.text for record in records], padding=True, return_tensors="pt")
    logits = model(**batch).logits
    assert logits.shape == (4, 4)
    assert torch.isfinite(logits).all()


def test_importing_the_module_does_not_load_transformers():
    code = "import sys, bert_lightning.demo.mini_bert; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
