"""Streams, events and synchronization."""

import threading

import pytest
import torch

import adaptive_eager


def pending() -> int:
    return adaptive_eager.stats().pending_ops


def leave_work_pending() -> torch.Tensor:
    """An op is recorded from the second time on that it is seen with a shape."""
    for _ in range(3):
        y = torch.ones(8, device="neuron") + 1
    assert pending() > 0
    return y


@pytest.fixture
def adaptive():
    with adaptive_eager.using_mode("adaptive"):
        yield


def test_current_stream_starts_as_the_default_one() -> None:
    assert torch.neuron.current_stream() == torch.neuron.default_stream()
    assert torch.neuron.default_stream().stream_id == 0
    assert torch.neuron.current_stream().device == torch.device("neuron:0")


def test_stream_contexts_switch_and_restore() -> None:
    a, b = torch.neuron.Stream(), torch.neuron.Stream()
    assert a != b
    with torch.neuron.stream(a):
        assert torch.neuron.current_stream() == a
        with b:
            assert torch.neuron.current_stream() == b == torch.accelerator.current_stream()
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == a
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_set_stream_is_per_thread() -> None:
    stream = torch.neuron.Stream()
    seen = []
    torch.neuron.set_stream(stream)
    try:
        thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_stream().stream_id))
        thread.start()
        thread.join()
        assert torch.neuron.current_stream() == stream
    finally:
        torch.neuron.set_stream(torch.neuron.default_stream())
    assert seen == [0]


def test_streams_compare_by_identity_and_hash() -> None:
    stream = torch.neuron.Stream()
    with stream:
        again = torch.neuron.current_stream()
    assert stream == again and hash(stream) == hash(again)
    assert stream != 3 and stream != None  # noqa: E711
    assert len({stream, again, torch.neuron.default_stream()}) == 2


def test_streams_have_priorities() -> None:
    lowest, highest = torch.neuron.Stream.priority_range()
    assert torch.neuron.Stream(priority=highest).priority == highest
    assert torch.neuron.Stream(priority=-100).priority == highest
    assert torch.neuron.Stream().priority == torch.neuron.default_stream().priority == lowest


def test_pool_of_streams_is_finite() -> None:
    assert len({torch.neuron.Stream() for _ in range(200)}) == 32


@pytest.mark.parametrize(
    "wait",
    [
        torch.neuron.synchronize,
        torch.accelerator.synchronize,
        lambda: torch.neuron.current_stream().synchronize(),
        lambda: torch.neuron.current_stream().query(),
        lambda: torch.neuron.Event(enable_timing=True).record(),
        lambda: torch.neuron.current_stream().record_event().synchronize(),
        lambda: torch.neuron.current_stream().record_event().query(),
    ],
)
def test_waiting_finishes_recorded_work(adaptive: None, wait) -> None:
    leave_work_pending()
    before = adaptive_eager.stats().flush_reasons["synchronize"]
    wait()
    assert pending() == 0
    assert adaptive_eager.stats().flush_reasons["synchronize"] == before + 1


def test_switching_streams_and_ordering_them_launches_nothing(adaptive: None) -> None:
    y = leave_work_pending()
    before = pending()
    side = torch.neuron.Stream()
    event = torch.neuron.Event()
    event.record()
    event.wait(side)
    side.wait_event(event)
    side.wait_stream(torch.neuron.current_stream())
    with torch.neuron.stream(side):
        torch.neuron.current_stream().wait_stream(torch.neuron.default_stream())
    assert pending() == before
    assert torch.equal(y.cpu(), torch.full((8,), 2.0))


def test_event_of_finished_work_launches_nothing_newer(adaptive: None) -> None:
    leave_work_pending()
    event = torch.neuron.current_stream().record_event()
    torch.neuron.synchronize()
    leave_work_pending()
    event.synchronize()
    assert event.query()
    assert pending() > 0


def test_results_do_not_depend_on_streams() -> None:
    for mode in ("eager", "adaptive"):
        with adaptive_eager.using_mode(mode):
            side = torch.neuron.Stream()
            x = torch.zeros(16, device="neuron")
            for step in range(20):
                with torch.neuron.stream(side if step % 2 else None):
                    x = x * 2 + step
                    x.record_stream(side)
            expected = torch.zeros(16)
            for step in range(20):
                expected = expected * 2 + step
            assert torch.equal(x.cpu(), expected)


def test_backward_runs_on_a_side_stream() -> None:
    x = torch.ones(4, device="neuron", requires_grad=True)
    with torch.neuron.stream(torch.neuron.Stream()):
        (x * 3).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((4,), 3.0))


def test_event_that_was_not_recorded_is_done() -> None:
    event = torch.neuron.Event()
    assert event.query()
    event.synchronize()
    event.wait()


def test_elapsed_time_is_in_order() -> None:
    a, b = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    a.record()
    b.record()
    assert a.elapsed_time(b) >= 0 >= b.elapsed_time(a)
    c = torch.Event("neuron", enable_timing=True)
    c.record()
    assert b.elapsed_time(c) >= 0


def test_elapsed_time_needs_recorded_events() -> None:
    a, b = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    a.record()
    with pytest.raises(ValueError, match="must be recorded before"):
        a.elapsed_time(b)


def test_elapsed_time_needs_timed_events() -> None:
    a, b = torch.neuron.Event(), torch.neuron.Event(enable_timing=True)
    a.record()
    b.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        a.elapsed_time(b)


def test_event_between_processes_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="interprocess=True is not supported"):
        torch.neuron.Event(interprocess=True)


def test_event_of_a_stream_is_ours_or_the_one_given() -> None:
    stream = torch.neuron.Stream()
    event = torch.neuron.Event()
    assert stream.record_event(event) is event
    assert isinstance(stream.record_event(), torch.neuron.Event)
