"""The built-in mini BERT: a vocabulary, a tokenizer and a shape for machines without the real one.

It needs no download and is small enough to train on two CPU cores. Its weights start at random,
hence its own learning rate. One token is one character: BERT reads Chinese character by character
anyway, and Latin words fall into letters.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import BertConfig, BertTokenizer

MINI_LEARNING_RATE = 1e-3
MAX_LENGTH = 512
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# What headlines hold beside the signs of GB 2312, whose codec maps a few to look-alikes.
_MORE_SIGNS = "·—–•‘’“”…￥€™®©ⅰⅱⅲⅳⅴ"


def _gb2312(first_row: int, last_row: int) -> list[str]:
    """Return the characters of some rows of the GB 2312 table in their order, gaps left out."""
    rows = range(first_row, last_row + 1)
    cells = (bytes((row, cell)) for row in rows for cell in range(0xA1, 0xFF))
    return [text for text in (cell.decode("gb2312", errors="ignore") for cell in cells) if text]


def ideographs() -> list[str]:
    """Return the 6,763 ideographs of GB 2312, common ones first."""
    return _gb2312(0xB0, 0xF7)


def _signs() -> list[str]:
    """Return what is not an ideograph, lower-cased: ASCII, punctuation, full-width forms."""
    ascii_signs = [chr(code) for code in range(0x21, 0x7F)]
    signs = [*ascii_signs, *_MORE_SIGNS, *_gb2312(0xA1, 0xA3)]
    return [sign for sign in dict.fromkeys(sign.lower() for sign in signs) if not sign.isspace()]


def _joins_words(sign: str) -> bool:
    """Return whether BERT leaves a sign inside a word, so that it needs a ``##`` form."""
    return sign.isalnum() if sign.isascii() else not unicodedata.category(sign).startswith("P")


def mini_vocabulary() -> list[str]:
    """Return the tokens of the mini BERT; position is the id."""
    signs = _signs()
    return [
        *SPECIAL_TOKENS,
        *signs,
        *(f"##{sign}" for sign in signs if _joins_words(sign)),
        *ideographs(),
    ]


def mini_tokenizer() -> BertTokenizer:
    """Return the mini BERT's tokenizer: lower-casing, character by character, no download."""
    from transformers import BertTokenizer

    vocabulary = {token: index for index, token in enumerate(mini_vocabulary())}
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=MAX_LENGTH)


def mini_config(num_labels: int = 2) -> BertConfig:
    """Return the mini BERT's shape.

    Args:
        num_labels: Number of classes.
    """
    from transformers import BertConfig

    config = BertConfig(
        vocab_size=len(mini_vocabulary()),
        hidden_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=MAX_LENGTH,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        initializer_range=0.05,  # BERT's 0.02 goes with a width of 768
        pad_token_id=SPECIAL_TOKENS.index("[PAD]"),
    )
    config.num_labels = num_labels
    return config
