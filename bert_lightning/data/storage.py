"""What is worth computing once → a folder that any later process finds again.

An entry is named by a hash of all that it depends on, so that changed input never meets an old
entry. It is built in a folder beside its place, under a lock, and renamed when it is whole: a build
that is killed leaves nothing that is ever opened. Files are Arrow streams and JSON, never pickles.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_lightning.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT = "content.json"  # sizes and checksums of the files of an entry, written last
_CHECKED_BYTES = 64 << 20  # some hundredths of a second; 1 GB would take one


def default_cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/bert_lightning``, or the same in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bert_lightning"


class Storage:
    """A folder of entries.

    Args:
        folder: Made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entry(self, name: str, key: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
        """Return the folder of an entry, after building it if it is not there.

        Processes that ask at the same time wait for the first one.

        Args:
            name: Kind of entry, for people who look into the folder.
            key: All that the content depends on; must be JSON.
            build: Writes the content into the empty folder that it is given. Whatever it raises
                leaves nothing behind.

        Raises:
            DataError: The folder cannot be written.
        """
        from filelock import FileLock

        text = json.dumps(key, sort_keys=True, ensure_ascii=False)
        place = self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        if _is_whole(place):
            return place
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / f"{place.name}.lock"):
                if not _is_whole(place):
                    self._build(place, text, build)
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if not is_full and not str(error.filename or "").startswith(str(self.folder)):
                raise
            raise DataError(
                [
                    "data.cache_dir: expected a folder to write to – found"
                    f" {os.strerror(error.errno or 0)} at {error.filename or self.folder}"
                ],
                "give another folder with --data.cache_dir",
            ) from error
        return place

    def _build(self, place: Path, key: str, build: Callable[[Path], None]) -> None:
        draft = place.with_name(f"{place.name}.draft")
        for leftover in (draft, place):  # of a build that was killed, or damaged since
            shutil.rmtree(leftover, ignore_errors=True)
        draft.mkdir()
        try:
            build(draft)
            files = {file.name: _state(file) for file in sorted(draft.iterdir())}
            content = {"key": json.loads(key), "files": files}
            (draft / CONTENT).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
            for file in draft.iterdir():
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
            draft.rename(place)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def _is_whole(place: Path) -> bool:
    try:
        content = json.loads((place / CONTENT).read_text(encoding="utf-8"))
        return all(_state(place / name) == state for name, state in content["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _state(file: Path) -> list[int]:
    """Return size and CRC-32 of a file; of a very large one the latter is left out, as 0."""
    size = file.stat().st_size
    return [size, zlib.crc32(file.read_bytes()) if size <= _CHECKED_BYTES else 0]


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[Mapping[str, Any]]) -> None:
    """Write columns to an Arrow stream, batch by batch.

    Args:
        path: The file.
        schema: Names and types of the columns.
        batches: Columns by name, as lists or Arrow arrays; each becomes one record batch.
    """
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for columns in batches:
            arrays = [pa.array(columns[field.name], field.type) for field in schema]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def open_arrow(path: Path) -> pa.Table:
    """Open an Arrow stream through `datasets`, memory-mapped: nothing is read before it is used."""
    import pyarrow as pa
    from datasets import Dataset

    try:
        return Dataset.from_file(str(path)).data.table
    except (pa.ArrowException, OSError) as error:
        raise _no_entry(path, error) from error


def open_json(path: Path) -> Any:
    """Return what a JSON file of an entry holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _no_entry(path, error) from error


def _no_entry(path: Path, error: Exception) -> DataError:
    return DataError(
        [f"data.cache_dir: expected what was stored at {path} – found {str(error)[:200]}"],
        "delete its folder, which is made again",
    )
