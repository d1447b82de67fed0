"""Work in several threads: the same results in order, and nothing left changed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from annotated.translation.threads import map_in_threads


@pytest.fixture(params=[2, 5])
def threads(request) -> Iterator[int]:
    """PyTorch with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def closing(monkeypatch) -> threading.Event:
    """Set when `map_in_threads` begins to wait for what is still running."""
    begun = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *arguments, **options):
            begun.set()
            super().shutdown(*arguments, **options)

    monkeypatch.setattr("annotated.translation.threads.ThreadPoolExecutor", Pool)
    return begun


def born_with() -> int:
    """With how many threads PyTorch begins in a new thread of Python."""
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def test_two_work_at_once_with_half_the_threads_each(threads):
    both_here = threading.Barrier(2, timeout=30)
    used = {}

    def work(item):
        both_here.wait()
        used[threading.get_ident()] = torch.get_num_threads()
        return -item

    assert list(map_in_threads(work, [1, 2])) == [-1, -2]
    assert len(used) == 2
    assert set(used.values()) == {threads // 2}
    assert torch.get_num_threads() == born_with() == threads


def test_an_error_ends_all_and_leaves_the_threads_as_they_were(threads, closing):
    begun = []

    def work(item):
        begun.append(item)
        if item == 0:
            raise ValueError("the first one fails")
        assert closing.wait(30)

    with pytest.raises(ValueError, match="the first one fails"):
        list(map_in_threads(work, range(1000)))
    assert len(begun) <= threads + 1
    assert torch.get_num_threads() == born_with() == threads


def test_a_worker_that_begins_late_leaves_the_threads_as_they_were(threads, closing, monkeypatch):
    at_once, both_here, workers = torch.set_num_threads, threading.Event(), iter(["first", "second"])

    def late(count):
        if threading.current_thread() is not threading.main_thread() and next(workers) == "second":
            both_here.set()
            assert closing.wait(30)
        at_once(count)

    monkeypatch.setattr(torch, "set_num_threads", late)
    results = map_in_threads(lambda _: both_here.wait(30), [0, 1])
    next(results)
    results.close()  # before the second worker has taken its number of threads
    assert torch.get_num_threads() == born_with() == threads


def test_two_maps_at_a_time_leave_the_threads_as_they_were(threads):
    second_begun, first_over = threading.Event(), threading.Event()

    def work_of_second(_):
        second_begun.set()
        assert first_over.wait(30)

    second = threading.Thread(target=lambda: list(map_in_threads(work_of_second, [0, 1])))

    def work(item):
        if item == 0:
            second.start()  # it begins with as few threads as the workers of the first have
        assert second_begun.wait(30)

    list(map_in_threads(work, [0, 1]))
    first_over.set()
    second.join()
    assert torch.get_num_threads() == born_with() == threads


@pytest.mark.parametrize("items", [[], [7]])
def test_one_item_keeps_the_thread_it_is_in(threads, items):
    used = list(map_in_threads(lambda _: threading.get_ident(), items))
    assert used == [threading.get_ident()] * len(items)


def test_in_one_thread_all_is_done_in_turn(one_thread):
    assert set(map_in_threads(lambda _: threading.get_ident(), range(3))) == {threading.get_ident()}
