"""Counters and explain()."""

import dataclasses

import pytest
import torch

import adaptive_eager
from adaptive_eager import _native
from adaptive_eager.stats import COUNTERS

pytestmark = pytest.mark.usefixtures("reset")


def work(steps: int = 3) -> torch.Tensor:
    x = torch.ones(4, device="neuron")
    for _ in range(steps):
        x = x * 2 + 1
    return x


def test_counters_are_the_native_struct() -> None:
    assert [name for name, _ in _native.ffi.typeof("ae_stats").fields] == list(COUNTERS)


def test_stats_are_frozen_and_go_to_a_dict() -> None:
    stats = adaptive_eager.stats()
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.launches = 1  # type: ignore[misc]
    assert stats.as_dict()["launches"] == stats.launches
    assert stats.as_dict()["flush_reasons"] == stats.flush_reasons


def test_every_op_is_a_launch_in_eager_mode() -> None:
    adaptive_eager.set_mode("eager")
    x = torch.ones(4, device="neuron")
    before = adaptive_eager.stats()
    _ = x * 2 + 1
    after = adaptive_eager.stats()
    assert after.launches - before.launches == 2
    assert after.ops_direct - before.ops_direct == 2
    assert after.ops_recorded == before.ops_recorded


def test_recorded_ops_share_a_launch_in_adaptive_mode() -> None:
    adaptive_eager.set_mode("adaptive")
    for _ in range(3):
        work()
        adaptive_eager.flush()
    before = adaptive_eager.stats()
    work()
    adaptive_eager.flush()
    after = adaptive_eager.stats()
    assert after.ops_recorded - before.ops_recorded >= 6
    assert after.launches - before.launches < 6


def test_value_read_and_user_flush_are_counted_with_their_reason() -> None:
    adaptive_eager.set_mode("adaptive")
    for _ in range(3):
        work().tolist()
        work()
        adaptive_eager.flush()
    reasons = adaptive_eager.stats().flush_reasons
    assert reasons["value_read"] > 0 and reasons["user_flush"] > 0


def test_reset_zeroes_the_counters() -> None:
    work().tolist()
    assert adaptive_eager.stats().launches > 0
    adaptive_eager.reset_stats()
    stats = adaptive_eager.stats()
    assert stats.launches == stats.ops_recorded == stats.ops_direct == 0
    assert not any((*stats.flush_reasons.values(), *stats.direct_reasons.values()))


def test_explain_prints_and_returns_regions_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    adaptive_eager.set_mode("adaptive")
    for _ in range(3):
        work().tolist()
    data = adaptive_eager.explain()
    printed = capsys.readouterr().out
    assert any("mul" in op for region in data["regions"] for op in region["ops"])
    assert {row["reason"] for row in data["flush_reasons"]} >= {"value_read"}
    assert all(row["hint"] for row in data["flush_reasons"])
    assert "value_read" in printed and "Regions by time" in printed


def test_explain_says_so_when_nothing_was_recorded(python) -> None:
    done = python("-c", "import adaptive_eager; adaptive_eager.explain()")
    assert "Nothing was recorded" in done.stdout
