"""Threads that process pieces of work."""

import multiprocessing
import threading

import pytest
import torch

from gcgp._runtime.threads import parallel_map, scratch, shares
from gcgp.kernel import sums
from slow_reference import example_kernel, ragged_patches


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_results_come_in_order_and_without_gradients():
    def work(piece):
        return piece, torch.is_grad_enabled(), torch.get_num_threads()

    assert list(parallel_map(work, range(5))) == [(n, False, 1) for n in range(5)]
    assert torch.is_grad_enabled()
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_other_threads_keep_their_number_of_torch_threads():
    list(parallel_map(int, range(2)))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [2]


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_a_piece_is_raised():
    with pytest.raises(ZeroDivisionError):
        list(parallel_map(lambda piece: 1 // piece, [1, 0]))


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.usefixtures("two_threads")
def test_shares_contain_all_pieces_in_order(count):
    runs = shares(range(count))
    assert [piece for run in runs for piece in run] == list(range(count))
    assert len(runs) <= 2


def test_scratch_memory_is_reused_and_grows():
    like = torch.zeros(1, dtype=torch.float64)
    small = scratch((2, 3), like)
    assert small.shape == (2, 3)
    assert scratch((3, 2), like).data_ptr() == small.data_ptr()
    assert scratch((1000, 1000), like).shape == (1000, 1000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_number_of_threads_changes_no_more_than_the_last_digit(dtype, monkeypatch):
    """Products of blocks of other sizes are rounded differently, and kernels of up to 40 patches add up."""
    monkeypatch.setattr("gcgp.kernel.engine.blocks.BLOCK_ELEMENTS", 64)
    patches = ragged_patches([30, 0, 1, 40, 7], dtype=dtype)
    inducing = ragged_patches([8], seed=3, dtype=dtype).values
    kernel = example_kernel("scaled rbf").to(dtype)
    before, actual = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        with torch.no_grad():
            actual.append((sums.kfu(kernel, patches, inducing), sums.kff_diagonal(kernel, patches)))
    torch.set_num_threads(before)
    for other in actual[1:]:
        for one, two in zip(actual[0], other, strict=True):
            torch.testing.assert_close(one, two, rtol=16 * torch.finfo(dtype).eps, atol=0)


def _in_child(queue):
    queue.put(list(parallel_map(int, range(3))))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_its_own_threads():
    list(parallel_map(int, range(3)))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    try:
        assert queue.get(timeout=60) == [0, 1, 2]
    finally:
        child.kill()
        child.join()
