"""A file on disk → its lines of text, or a refusal that says what the file really is.

Takes UTF-8 with or without a byte order mark, and GB18030 (GBK, GB 2312), told from the bytes. LF,
CRLF and a lone CR end a line; other signs, such as U+2028, never do.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from bert_lightning.data.records import Fault
from bert_lightning.errors import ConfigError, DataError

NumberedLines = Iterable[tuple[int, "str | Fault"]]
AUTO = "auto"
UTF_8, GB18030 = "utf-8", "gb18030"
_ASCII = bytes([*b"\t\r\n", *range(0x20, 0x7F)])
_HEAD_BYTES = 512
_PROBE_BYTES = 4 << 20
_PLAUSIBLE_SHARE = 0.8  # of GB18030 text lies in GB 2312 or is ASCII; of other encodings' far less
_MAGIC = {
    b"version https://git-lfs": "a Git LFS pointer: the data was never fetched (git lfs pull)",
    b"\x00\x05\x16\x07": "macOS AppleDouble metadata: delete the files named ._*",
    b"\x00\x05\x16\x00": "macOS AppleDouble metadata: delete the files named ._*",
    b"PK\x03\x04": "a zip archive or office document: unpack it, or export it as text",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"BZh": "a bzip2 archive: unpack it first",
    b"\xfd7zXZ": "an xz archive: unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd archive: unpack it first",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
    b"Rar!": "a rar archive: unpack it first",
    b"SQLite format": "an SQLite database: export it as text",
    b"%PDF": "a PDF: export it as text",
    b"\xd0\xcf\x11\xe0": "an old office document: export it as text",
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "a Python pickle, which is never opened: export it as text",
    ),
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}
_ENDS = re.compile(rb"\r\n|\r|\n")
_PAGES = (b"<!doctype html", b"<html", b"<?xml")
_MESSAGES = (  # these alone in a file: a headline may begin so as well
    *(b"404: not found", b"404 not found", b"not found", b"403 forbidden", b"access denied"),
    *(b"bad gateway", b"502 bad gateway"),
)


def is_hidden(path: Path) -> bool:
    """Tell whether a file is none of the user's: ``._*`` of macOS, ``.DS_Store`` and the like."""
    return path.name.startswith(".")


def refusal(path: Path) -> str | None:
    """Return what a file is, if it is not text data, and what to do; None if it may be data."""
    with path.open("rb") as stream:
        return refusal_of(stream.read(_HEAD_BYTES + 1))


def refusal_of(content: bytes) -> str | None:
    """Return what the content of a file is, as `refusal` does; its first kilobyte is enough."""
    head = content[:_HEAD_BYTES]
    for magic, meaning in _MAGIC.items():
        if head.startswith(magic):
            return meaning
    start = head.removeprefix(codecs.BOM_UTF8)
    if not start:
        return "an empty file"
    start = start.lstrip()
    is_message = len(content) <= _HEAD_BYTES and len(start.splitlines()) < 3 and b"\t" not in start
    if start.lower().startswith((*_PAGES, *_MESSAGES) if is_message else _PAGES):
        return "a saved web page or error message: download the data again"
    if b"\x00" in head:
        return "a binary file"
    return None


def name_of(path: Path) -> str:
    """Return a path as text that can be written; names that are no UTF-8 are taken for GB18030.

    Archives that were packed on Chinese Windows are unpacked to such names.
    """
    raw = os.fsencode(path.as_posix())
    for encoding in (UTF_8, GB18030):
        if _decodes(raw, encoding):
            return raw.decode(encoding)
    return raw.decode(UTF_8, "replace")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def check_encoding(encoding: str) -> None:
    """Refuse a name in ``data.encoding`` that no text file of lines can have.

    Raises:
        ConfigError: Unknown, or not built on ASCII.
    """
    if encoding == AUTO:
        return
    try:
        is_fit = _ASCII.decode(encoding) == _ASCII.decode("ascii")
    except (LookupError, ValueError):
        is_fit = False
    if not is_fit:
        raise ConfigError(
            "data.encoding: expected auto, utf-8, gb18030 or another encoding built on ASCII"
            f" – found {encoding!r}"
        )


def encoding_of(path: Path) -> str:
    """Return ``utf-8`` or ``gb18030``, whichever most lines of the file are.

    Raises:
        DataError: Most lines are neither.
    """
    with path.open("rb") as stream:
        probe = stream.read(_PROBE_BYTES)
    if len(probe) < _PROBE_BYTES:
        return encoding_of_bytes(probe, name_of(path))
    lines = probe[: max(probe.rfind(b"\n"), probe.rfind(b"\r")) + 1]
    return encoding_of_bytes(lines or _without_cut_character(probe), name_of(path))


def _without_cut_character(probe: bytes) -> bytes:
    """Take off the end the bytes of a character that is not whole: of one line, as JSON can be."""
    for encoding in (UTF_8, GB18030):
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            decoder.decode(probe)
        except UnicodeDecodeError:
            continue
        return probe.removesuffix(decoder.getstate()[0])
    return probe


def encoding_of_bytes(probe: bytes, name: str) -> str:
    """Return the encoding of some lines, as `encoding_of` does.

    Args:
        probe: The bytes.
        name: What they are called in the error.
    """
    lines = [line for line in probe.splitlines() if not line.isascii()]
    if 2 * sum(_decodes(line, UTF_8) for line in lines) >= len(lines):
        return UTF_8
    others = [line for line in lines if not _decodes(line, UTF_8)]
    text = b"".join(line for line in others if _decodes(line, GB18030)).decode(GB18030)
    usual = len(text.encode("gb2312", "ignore").decode("gb2312"))
    if text and usual >= _PLAUSIBLE_SHARE * len(text):
        return GB18030
    shown = others[0][:24].hex(" ")
    raise DataError(
        [f"{name}: expected UTF-8 or GB18030 text – found lines that are neither: {shown}"],
        "save it as UTF-8, or name its encoding in data.encoding",
    )


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def numbered_lines(
    path: Path, encoding: str = AUTO, source: str | None = None, longest: int | None = None
) -> Iterator[tuple[int, str | Fault]]:
    """Yield (1-based line number, line without its end); a line that is no text is a fault.

    Args:
        path: A text file.
        encoding: Name of an encoding, or ``auto`` to tell it from the bytes.
        source: What the file is called in faults; None takes its path.
        longest: Bytes of a line that are kept, so that one line never fills the memory; None keeps
            all.

    Raises:
        DataError: Missing, unreadable, no text, or of no known encoding.
    """
    try:
        meaning = refusal(path)
        if meaning:
            raise DataError([f"{name_of(path)}: expected text data – found {meaning}"])
        name = encoding_of(path) if encoding == AUTO else encoding
        shown = source or name_of(path)
        with path.open("rb") as stream:
            lines = _split_lines(stream) if longest is None else _cut_lines(stream, longest)
            for number, line in enumerate(lines, start=1):
                yield number, decode_line(line, name, shown, number)
    except OSError as error:
        raise DataError(
            [f"{name_of(path)}: expected a readable file – found {error.strerror}"]
        ) from error


def _split_lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Split at LF, CRLF and CR; none of these bytes is part of a UTF-8 or GB18030 character."""
    for line in stream:
        if b"\r" not in line:
            yield line.removesuffix(b"\n")
        else:
            yield from line.removesuffix(b"\n").removesuffix(b"\r").split(b"\r")


def _cut_lines(stream: BinaryIO, longest: int) -> Iterator[bytes]:
    """Split as `_split_lines` does, and leave out what a line holds beyond some bytes."""
    line = b""
    for part in iter(partial(stream.readline, longest), b""):
        if not line and part.endswith(b"\n") and b"\r" not in part:  # as nearly all are
            yield part[:-1]
            continue
        # a CR at the end may be half of a CRLF, which the next part tells
        whole, cr = (part[:-1], b"\r") if part.endswith(b"\r") else (part, b"")
        *ended, line = _ENDS.split(line + whole)
        yield from (_cut(text, longest) for text in ended)
        line = line[: longest + 1] + cr
    if line:
        yield _cut(line.removesuffix(b"\r"), longest)


def _cut(line: bytes, longest: int) -> bytes:
    return line if len(line) <= longest else _without_cut_character(line[:longest])


def decode_line(line: bytes, encoding: str, source: str, number: int) -> str | Fault:
    """Decode a line of a file.

    Files that were pasted together may hold lines of UTF-8 among GB18030; those are told apart,
    since they would decode as GB18030, to nonsense. The reverse is a fault: damaged UTF-8 would.
    """
    try:
        text = line.decode(UTF_8 if encoding in (UTF_8, GB18030) else encoding)
        if encoding == GB18030 and not line.isascii() and max(text) < "\u0800":
            text = line.decode(GB18030)  # by chance: no ideograph takes two bytes in UTF-8
        return text.lstrip("\ufeff")
    except UnicodeDecodeError as error:
        if encoding == GB18030 and _decodes(line, GB18030):
            return line.decode(GB18030)
        return Fault(
            source,
            number,
            f"{encoding} text",
            f"byte 0x{line[error.start]:02x} at position {error.start + 1} of the line",
        )
