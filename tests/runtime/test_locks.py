import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.runtime.locks import try_lock, wait_for_lock


def hold(path: Path, ready) -> None:
    with try_lock(path) as held:
        ready.put(held)
        time.sleep(60)


def test_one_holder_at_a_time(tmp_path):
    with try_lock(tmp_path / "new" / "lock") as first:
        with try_lock(tmp_path / "new" / "lock") as second:
            assert first and not second
        with try_lock(tmp_path / "new" / "lock") as third:  # the one that was refused has released nothing
            assert not third
    with try_lock(tmp_path / "new" / "lock") as after:
        assert after


def test_a_killed_holder_releases_its_lock(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    holder = context.Process(target=hold, args=(tmp_path / "lock", ready))
    holder.start()
    try:
        assert ready.get(timeout=60)
        with try_lock(tmp_path / "lock") as held:
            assert not held
    finally:
        holder.kill()
        holder.join()
    with try_lock(tmp_path / "lock") as held:
        assert held


@pytest.mark.parametrize("progress", [True, False])
def test_waiting_ends_when_the_lock_is_released_and_is_shown(tmp_path, capsys, progress):
    order = []
    acquired = threading.Event()

    def first() -> None:
        with wait_for_lock(tmp_path / "lock", "fetching tones"):
            acquired.set()
            time.sleep(0.3)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert acquired.wait(10)
    with wait_for_lock(tmp_path / "lock", "fetching tones", progress=progress):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    assert ("fetching tones" in capsys.readouterr().err) == progress


@pytest.mark.parametrize("lock", [try_lock, lambda path: wait_for_lock(path, "testing")])
def test_a_folder_that_cannot_be_written(tmp_path, lock):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"), lock(tmp_path / "file" / "lock"):
        pass
    with pytest.raises(StorageError, match="lock"), lock(Path(os.devnull) / "lock"):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="lock"), try_lock(tmp_path / "lock"):
        pass


def test_an_error_in_the_block_is_raised_as_it_is(tmp_path):
    with pytest.raises(OSError, match="mine"), try_lock(tmp_path / "lock"):
        raise OSError("mine")
