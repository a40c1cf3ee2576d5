"""Streams and events of `torch.neuron`, with the meanings of torch.cuda's.

Work runs in program order whatever its stream, so that waiting for another stream or an event is always satisfied.
"""

from types import TracebackType
from typing import Any

import torch

from . import _native
from ._device import NAME, Device, index_of

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
    "synchronize",
]


class Stream(torch.Stream):
    """A stream of the device. A lower `priority` number is a higher priority: 0, the default, or negative."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, torch.device(NAME, index_of(device)), priority=priority)

    @property
    def priority(self) -> int:
        return -(self.stream_id % 2)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority."""
        return 0, -1

    def wait_event(self, event: torch.Event) -> None:
        """What is issued on this stream from now on waits for `event`."""
        event.wait(self)

    def wait_stream(self, other: torch.Stream) -> None:
        """What is issued on this stream from now on waits for what was issued on `other`."""
        self.wait_event(other.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records `event`, or a new one, after what was issued on this stream."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"<torch.{NAME}.Stream device={self.device} stream_id={self.stream_id}>"


class Event(torch.Event):
    """A mark in a stream's work. One made with `enable_timing=True`, for `elapsed_time`, waits for it when recorded."""

    _timed: bool

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> "Event":
        if interprocess:
            raise NotImplementedError(f"torch.{NAME}.Event: interprocess=True is not supported, expected False")
        self = super().__new__(cls, torch.device(NAME), enable_timing=enable_timing, blocking=blocking)
        self._timed = enable_timing
        return self

    def record(self, stream: torch.Stream | None = None) -> None:
        """Marks the work issued on `stream`, or the current one, so far."""
        super().record(current_stream() if stream is None else stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """What is issued on `stream`, or the current one, from now on waits for this event."""
        super().wait(current_stream() if stream is None else stream)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds from when this event's work was done to when `end_event`'s was."""
        if not isinstance(end_event, Event):
            return super().elapsed_time(end_event)
        # torch 2.13 takes no subclass of torch.Event here
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.event_id and end_event.event_id):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        elapsed: float = _native.lib.ae_elapsed_time(self.event_id, end_event.event_id)
        return elapsed

    def __repr__(self) -> str:
        return f"<torch.{NAME}.Event {self.event_id:#x}>" if self.event_id else f"<torch.{NAME}.Event not recorded>"


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: Device = None) -> Stream:
    """The stream on which this thread issues work."""
    return _wrap(torch._C._accelerator_getStream(index_of(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream on which a thread issues work unless told otherwise."""
    now = torch._C._accelerator_getStream(index_of(device))
    return Stream(stream_id=0, device_index=now.device_index, device_type=now.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` the current one of this thread. None changes nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Makes a stream the current one within a `with` block. None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: Stream | None = None

    def __enter__(self) -> None:
        self._previous = current_stream()
        set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_stream(self._previous)


def stream(stream: torch.Stream | None) -> StreamContext:
    """`with torch.neuron.stream(s):` issues work on `s`."""
    return StreamContext(stream)


def synchronize(device: Device = None) -> None:
    """Waits until all work on the device is done."""
    torch._C._accelerator_synchronizeDevice(index_of(device))
