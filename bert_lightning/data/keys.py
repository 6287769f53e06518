"""Texts → keys that tell whether two of them are the same news.

Two keys: of the text as it stands, and of what is left of it without case, width, blanks,
punctuation and the marks that an editor adds to a headline, such as 组图: and (图).
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

_BLANKS = re.compile(r"\s+")
_PICTURE_PREFIX = re.compile(r"^(?:组图:|图文[-:]|图:)")
_EDITOR_MARKS = re.compile(r"\((?:图|组图|附图|视频|\d{1,2})\)")  # a number counts pages
_NOT_WORDS = re.compile(r"[\W_]+")


def normalised(text: str) -> str:
    """Return the text without all that two copies of one headline may differ in.

    >>> normalised("图文-首页 新闻（图）：A B")
    '首页新闻ab'
    """
    text = _BLANKS.sub("", unicodedata.normalize("NFKC", text).lower())
    return _NOT_WORDS.sub("", _EDITOR_MARKS.sub("", _PICTURE_PREFIX.sub("", text)))


def key_of(text: str) -> int:
    """Return 64 bits of a text's BLAKE2 hash as a signed integer, the same in every process."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
