"""Compiled loops on disk: found again, never trusted when damaged or someone else's, never a reason to fail."""

import errno
import multiprocessing
import os
import stat
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from adaptive_eager import _kernel_cache
from adaptive_eager._errors import AdaptiveEagerWarning
from adaptive_eager._kernel_cache import BLOCK, HEADER, KernelCache, key_of

INGREDIENTS = {"ir": "a", "llvm": "b", "cpu": "c", "features": "d", "torch": "e", "package": "f"}
KEY = key_of(**INGREDIENTS)
IMAGE = bytes(range(256)) * 4
AMPLE = 1 << 30


def numbered(number: int) -> str:
    return key_of(**INGREDIENTS | {"ir": str(number)})


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels", AMPLE)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The warnings of the test, as if no other had been given in this process."""
    sentences: list[str] = []
    monkeypatch.setattr(_kernel_cache, "_warned", set())
    monkeypatch.setattr(_kernel_cache, "warn", sentences.append)
    yield sentences


def test_image_is_found_again(cache: KernelCache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, IMAGE)
    assert cache.get(KEY) == IMAGE
    assert KernelCache(cache.folder, AMPLE).get(KEY) == IMAGE
    assert cache.get(numbered(1)) is None


def test_later_image_takes_the_place_of_an_earlier_one(cache: KernelCache) -> None:
    cache.put(KEY, b"old")
    cache.put(KEY, IMAGE)
    assert cache.get(KEY) == IMAGE
    assert [entry.key for entry in cache.entries()] == [KEY]


def test_discarded_image_is_gone(cache: KernelCache) -> None:
    cache.put(KEY, IMAGE)
    cache.discard(KEY)
    assert cache.get(KEY) is None


def test_limit_of_zero_keeps_nothing(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "kernels", 0)
    cache.put(KEY, IMAGE)
    assert cache.get(KEY) is None and not cache.folder.exists()


def test_default_directory_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ADAPTIVE_EAGER_CACHE_DIR", raising=False)
    assert _kernel_cache.from_environment([]).folder == tmp_path / "adaptive_eager"


def test_directory_and_limit_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ADAPTIVE_EAGER_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("ADAPTIVE_EAGER_CACHE_BYTES", "0")
    problems: list[str] = []
    cache = _kernel_cache.from_environment(problems)
    cache.put(KEY, IMAGE)
    assert cache.folder == tmp_path / "here" and not cache.folder.exists() and not problems


def test_file_in_place_of_the_directory_is_a_problem_with_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ADAPTIVE_EAGER_CACHE_DIR", str(tmp_path / "file"))
    problems: list[str] = []
    _kernel_cache.from_environment(problems)
    (problem,) = problems
    assert "ADAPTIVE_EAGER_CACHE_DIR" in problem and "expected a directory" in problem


@pytest.mark.parametrize("name", INGREDIENTS)
def test_key_changes_with_each_ingredient(name: str) -> None:
    assert key_of(**INGREDIENTS | {name: "other"}) != KEY


def test_key_changes_with_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kernel_cache, "FORMAT", 2)
    assert key_of(**INGREDIENTS) != KEY


def test_key_tells_where_an_ingredient_ends() -> None:
    assert key_of(**INGREDIENTS | {"ir": "ab", "llvm": ""}) != key_of(**INGREDIENTS | {"ir": "a", "llvm": "b"})


def test_directory_and_entries_are_the_users_own(cache: KernelCache) -> None:
    cache.put(KEY, IMAGE)
    (entry,) = cache.entries()
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.path.stat().st_mode) == 0o600


FIELDS = {"magic": 0, "format": 8, "key": 12, "length": 32, "checksum": 40, "image": HEADER.size, "end": -1}


def damaged(cache: KernelCache, data: bytes | None = None) -> Path:
    cache.put(KEY, IMAGE)
    (entry,) = cache.entries()
    if data is not None:
        entry.path.write_bytes(data)
    return entry.path


@pytest.mark.parametrize("at", FIELDS.values(), ids=FIELDS)
def test_flipped_bit_is_noticed_and_the_entry_removed(cache: KernelCache, warned: list[str], at: int) -> None:
    path = damaged(cache)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    assert [found.path for found, _ in cache.verify()] == [path]
    assert cache.get(KEY) is None and not path.exists()
    assert len(warned) == 1 and str(path) in warned[0]
    cache.put(KEY, IMAGE)
    assert cache.get(KEY) == IMAGE


@pytest.mark.parametrize("keep", [0, 1, HEADER.size - 1, HEADER.size, HEADER.size + 1, -1])
def test_cut_entry_is_noticed(cache: KernelCache, warned: list[str], keep: int) -> None:
    path = damaged(cache)
    path.write_bytes(path.read_bytes()[:keep])
    assert cache.get(KEY) is None and not path.exists() and len(warned) == 1


def test_entry_under_another_key_is_noticed(cache: KernelCache, warned: list[str]) -> None:
    path = damaged(cache)
    path.rename(path.with_name(numbered(1) + ".kernel"))
    assert cache.get(numbered(1)) is None and "another key" in warned[0]


def test_many_damaged_entries_are_one_warning(cache: KernelCache, warned: list[str]) -> None:
    for number in range(3):
        cache.put(numbered(number), IMAGE)
    for entry in cache.entries():
        entry.path.write_bytes(b"x" * 100)
    assert [cache.get(numbered(number)) for number in range(3)] == [None] * 3
    assert len(warned) == 1


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_entry_that_others_may_write_is_not_used(cache: KernelCache, warned: list[str], mode: int) -> None:
    path = damaged(cache)
    path.chmod(mode)
    assert cache.get(KEY) is None and not path.exists() and "others may write" in warned[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_entry_of_another_user_is_not_used(cache: KernelCache, warned: list[str]) -> None:
    path = damaged(cache)
    os.chown(path, 12345, -1)
    assert cache.get(KEY) is None and not path.exists() and "user 12345" in warned[0]


def test_entry_of_another_user_is_told_by_its_owner(
    cache: KernelCache, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = damaged(cache).stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert (cache.get(KEY) is None) == (owned != 0)  # root's files are as good as one's own


def test_entry_that_is_a_link_is_not_used(cache: KernelCache, warned: list[str], tmp_path: Path) -> None:
    path = damaged(cache)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.get(KEY) is None and "symbolic link" in warned[0]
    assert (tmp_path / "elsewhere").exists() and not path.is_symlink()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_entry_that_is_no_file_is_not_used(cache: KernelCache, warned: list[str], make) -> None:
    path = damaged(cache)
    path.unlink()
    make(path)
    assert cache.get(KEY) is None and len(warned) == 1
    cache.put(KEY, IMAGE)  # not over a directory, and then without a second kind of failure
    assert cache.get(KEY) in (IMAGE, None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_directory_is_one_warning(cache: KernelCache, warned: list[str]) -> None:
    cache.put(KEY, IMAGE)
    cache.folder.chmod(0o500)
    cache.put(numbered(1), IMAGE)
    cache.put(numbered(2), IMAGE)
    cache.folder.chmod(0o700)
    assert cache.get(KEY) == IMAGE and len(warned) == 1


def test_directory_that_cannot_be_made_is_one_warning(tmp_path: Path, warned: list[str]) -> None:
    (tmp_path / "file").touch()
    cache = KernelCache(tmp_path / "file" / "kernels", AMPLE)
    for number in range(3):
        assert cache.get(numbered(number)) is None
        cache.put(numbered(number), IMAGE)
    assert len(warned) == 1 and str(cache.folder) in warned[0]
    assert cache.entries() == [] and cache.verify() == [] and cache.clear() == 0


def full(*args: object, **kwargs: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["write", "replace", "mkdir"])
def test_full_disk_is_one_warning_and_leaves_nothing_behind(
    cache: KernelCache, warned: list[str], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        for number in range(3):
            cache.put(numbered(number), IMAGE)
    assert cache.get(KEY) is None and len(warned) == 1 and "No space left" in warned[0]
    assert not cache.folder.exists() or not list(cache.folder.iterdir())


def test_short_writes_are_continued(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:100]))
        cache.put(KEY, IMAGE)
    assert cache.get(KEY) == IMAGE


def test_least_recently_used_entries_go_first(cache: KernelCache) -> None:
    for number in range(10):
        cache.put(numbered(number), IMAGE)
        os.utime(cache.folder / f"{numbered(number)}.kernel", (number, number))
    small = KernelCache(cache.folder, 10 * BLOCK)
    small.trim()
    assert len(small.entries()) == 10  # within the limit
    assert small.get(numbered(0)) == IMAGE  # used now
    KernelCache(cache.folder, 6 * BLOCK).trim()
    assert {entry.key for entry in small.entries()} == {numbered(number) for number in (0, 6, 7, 8, 9)}


def test_limit_holds_without_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache(tmp_path, 16 * BLOCK)
    for number in range(4 * _kernel_cache.PUTS_PER_TRIM):
        cache.put(numbered(number), IMAGE)
        assert len(cache.entries()) < 16 + _kernel_cache.PUTS_PER_TRIM


def test_image_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, BLOCK)
    cache.put(KEY, bytes(BLOCK))
    assert cache.get(KEY) is None


def test_hit_renews_the_date_once_a_day(cache: KernelCache) -> None:
    path = damaged(cache)
    for age, renewed in ((3600, False), (3 * 24 * 3600, True)):
        then = time.time() - age
        os.utime(path, (then, then))
        cache.get(KEY)
        assert (path.stat().st_mtime > then + 1) == renewed


def test_what_writers_left_behind_is_removed_when_it_is_old(cache: KernelCache) -> None:
    cache.put(KEY, IMAGE)
    old, new = (cache.folder / f"{_kernel_cache.TEMPORARY}{name}" for name in ("old", "new"))
    old.touch()
    new.touch()
    os.utime(old, (1, 1))
    cache.trim()
    assert not old.exists() and new.exists()


def test_clear_leaves_what_is_not_the_caches(cache: KernelCache) -> None:
    for number in range(3):
        cache.put(numbered(number), IMAGE)
    (cache.folder / "notes.txt").touch()
    assert cache.verify() == []
    assert cache.clear() == 3
    assert [path.name for path in cache.folder.iterdir()] == ["notes.txt"]


def image_of(number: int) -> bytes:
    return bytes([number]) * (1000 + 977 * number)


def write_and_read(folder: Path) -> int:
    """Images that were read wrong, or warned of."""
    warnings.simplefilter("error", AdaptiveEagerWarning)
    cache = KernelCache(folder, 12 * BLOCK)
    wrong = 0
    for turn in range(300):
        number = turn % 8
        cache.put(numbered(number), image_of(number))
        found = cache.get(numbered((number + 3) % 8))
        wrong += found is not None and found != image_of((number + 3) % 8)
        if turn % 20 == 0:
            cache.trim()
    return wrong + len(_kernel_cache._warned)


def test_processes_share_a_directory(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(write_and_read, [tmp_path] * 3) == [0] * 3
    cache = KernelCache(tmp_path, AMPLE)
    assert cache.entries() and not cache.verify()
    assert not list(tmp_path.glob(f"{_kernel_cache.TEMPORARY}*"))
