"""Compiled loops on disk: one file for each key, shared by processes, bounded, and never a reason to fail.

An entry is a header and an object image, nothing that is executed by reading it. It is trusted only as far as the
user's own files are: it has to be theirs or root's, writable by nobody else, and whole.
"""

import hashlib
import os
import random
import re
import stat
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from . import _env
from ._warn import warn

FORMAT = 1  # raise it when the same IR is compiled in another way, or the header changes
MAGIC = b"AEKERNEL"
HEADER = struct.Struct("<8sI20sQ32s")  # magic, format, key, length and checksum of the image
SUFFIX = ".kernel"
TEMPORARY = ".writing-"
NAME = re.compile(r"[0-9a-f]{40}\.kernel")
BLOCK = 4096  # what a small file takes on disk
LARGEST = 64 << 20
TOUCH_SECONDS = 24 * 3600  # a hit renews an entry's date no more often
ABANDONED_SECONDS = 3600  # whoever was writing this is gone
PUTS_PER_TRIM = 256  # a trim looks at every file

File = tuple[os.DirEntry[str], os.stat_result]

_warned: set[str] = set()


def _warn_once(what: str, sentence: str) -> None:
    if what not in _warned:
        _warned.add(what)
        warn(sentence)


class Unusable(Exception):
    """The file is no entry that may be used; the message is one clause that says why."""


@dataclass(frozen=True)
class Entry:
    key: str
    path: Path
    size: int
    used: float  # seconds since the epoch, to within TOUCH_SECONDS


def key_of(*, ir: str, llvm: str, cpu: str, features: str, torch: str, package: str) -> str:
    """Equal only where the same object image would come out and may be run."""
    digest = hashlib.blake2b(digest_size=20)
    for text in (str(FORMAT), ir, llvm, cpu, features, torch, package):
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def from_environment(problems: list[str]) -> "KernelCache":
    return KernelCache(_env.read(_env.CACHE_DIR, problems), _env.read(_env.CACHE_BYTES, problems))


class KernelCache:
    def __init__(self, folder: Path | None, limit: int) -> None:
        """`folder`: None for the user's own cache directory. `limit`: bytes on disk, 0 to keep nothing there."""
        self._chosen = folder
        self._limit = limit
        self._puts = random.randrange(PUTS_PER_TRIM)  # many short processes trim as often as a long one
        self._writable = True

    @cached_property
    def folder(self) -> Path:
        if self._chosen is not None:
            return self._chosen
        from platformdirs import user_cache_path  # not at start-up

        return user_cache_path("adaptive_eager")

    def get(self, key: str) -> bytes | None:
        """The object image of the key, if there is a good one."""
        if not self._limit:
            return None
        path = self._path(key)
        try:
            return _read(path, key, touch=True)
        except FileNotFoundError:
            return None
        except Unusable as why:
            _unlink(path)
            _warn_once("unusable", f"{path} is ignored: it is no compiled loop of this user ({why}).")
        except OSError as error:
            _warn_once("disk", f"compiled loops cannot be read from {self.folder}: {error.strerror}.")
        return None

    def put(self, key: str, image: bytes) -> None:
        if not self._writable or _on_disk(HEADER.size + len(image)) > min(self._limit, LARGEST):
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._replacing(self._path(key)) as file:
                data = memoryview(_header(key, image) + image)
                while data:
                    data = data[os.write(file, data) :]
        except OSError as error:
            self._writable = False
            _warn_once("disk", f"compiled loops are not kept in {self.folder}: {error.strerror}.")
            return
        self._puts += 1
        if self._puts % PUTS_PER_TRIM == 0:
            self.trim()

    def discard(self, key: str) -> None:
        _unlink(self._path(key))

    def entries(self) -> list[Entry]:
        """The entries, least recently used first, whether good or not."""
        return _entries(self._files())

    def verify(self) -> list[tuple[Entry, str]]:
        """The entries that would not be used, each with the reason."""
        bad = []
        for entry in self.entries():
            try:
                _read(entry.path, entry.key, touch=False)
            except FileNotFoundError:  # removed by another process meanwhile
                continue
            except Unusable as why:
                bad.append((entry, str(why)))
            except OSError as error:
                bad.append((entry, str(error.strerror)))
        return bad

    def clear(self) -> int:
        """Removes the entries, and says how many. What others put into the directory stays."""
        _sweep(self._files(), 0)
        return sum(_unlink(entry.path) for entry in self.entries())

    def trim(self) -> None:
        """Removes the least recently used entries beyond nine tenths of the limit, if the limit is exceeded."""
        files = list(self._files())
        _sweep(files, ABANDONED_SECONDS)
        entries = _entries(files)
        total = sum(entry.size for entry in entries)
        if total <= self._limit:
            return
        for entry in entries:
            if total <= self._limit * 9 // 10:
                break
            total -= entry.size
            _unlink(entry.path)

    def _path(self, key: str) -> Path:
        return self.folder / (key + SUFFIX)

    def _files(self) -> Iterator[File]:
        with suppress(OSError), os.scandir(self.folder) as items:
            for item in items:
                with suppress(OSError):  # removed by another process meanwhile
                    yield item, item.stat(follow_symlinks=False)

    @contextmanager
    def _replacing(self, path: Path) -> Iterator[int]:
        """A file that takes the place of `path` when it is complete. Not synced: a torn one fails its checksum."""
        file, name = tempfile.mkstemp(prefix=TEMPORARY, dir=self.folder)  # of mode 0600
        try:
            try:
                yield file
            finally:
                os.close(file)
            os.replace(name, path)
        except BaseException:
            _unlink(Path(name))
            raise


def _entries(files: Iterable[File]) -> list[Entry]:
    found = [
        Entry(item.name.removesuffix(SUFFIX), Path(item.path), _on_disk(status.st_size), status.st_mtime)
        for item, status in files
        if NAME.fullmatch(item.name)
    ]
    return sorted(found, key=lambda entry: entry.used)


def _sweep(files: Iterable[File], seconds: float) -> None:
    """Removes what writers left behind at least so long ago."""
    for item, status in files:
        if item.name.startswith(TEMPORARY) and status.st_mtime <= time.time() - seconds:
            _unlink(Path(item.path))


def _header(key: str, image: bytes) -> bytes:
    return HEADER.pack(MAGIC, FORMAT, bytes.fromhex(key), len(image), _checksum(image))


def _checksum(image: bytes) -> bytes:
    return hashlib.blake2b(image, digest_size=32).digest()


def _on_disk(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _read(path: Path, key: str, touch: bool) -> bytes:
    """The image in the file. Everything is asked of the opened file, so that it cannot be swapped in between."""
    if path.is_symlink():
        raise Unusable("it is a symbolic link")
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(file, "rb", buffering=0) as source:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Unusable("it is not a regular file")
        if status.st_uid not in (os.geteuid(), 0):
            raise Unusable(f"it belongs to user {status.st_uid}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Unusable("others may write to it")
        if not HEADER.size <= status.st_size <= HEADER.size + LARGEST:
            raise Unusable(f"it has {status.st_size} bytes")
        data = source.readall()
        if touch and status.st_mtime < time.time() - TOUCH_SECONDS:
            with suppress(OSError):
                os.utime(file)
    magic, version, owner, length, checksum = HEADER.unpack_from(data)
    image = data[HEADER.size :]
    if magic != MAGIC:
        raise Unusable("it is of another kind")
    if version != FORMAT:
        raise Unusable(f"its format is {version}, expected {FORMAT}")
    if owner != bytes.fromhex(key):
        raise Unusable("it holds another key")
    if length != len(image):
        raise Unusable(f"it holds {len(image)} of {length} bytes")
    if checksum != _checksum(image):
        raise Unusable("its checksum does not match")
    return image
