"""adaptive_eager.config and the mode: reading, setting, scoping, and errors that name what is wrong."""

import pytest

import adaptive_eager
from adaptive_eager.config import policies

pytestmark = pytest.mark.usefixtures("reset")


def test_every_constant_is_within_its_range() -> None:
    for name, policy in policies().items():
        assert policy.low <= policy.initial <= policy.high, name


def test_constants_are_set_by_attribute_and_by_item() -> None:
    adaptive_eager.config.max_region_ops = 7
    assert adaptive_eager.config["max_region_ops"] == 7
    adaptive_eager.config["max_region_ops"] = 8
    assert adaptive_eager.config.max_region_ops == adaptive_eager.config.as_dict()["max_region_ops"] == 8


def test_constants_are_listed() -> None:
    names = list(policies())
    assert list(adaptive_eager.config) == list(adaptive_eager.config.as_dict()) == names
    assert set(names) < set(dir(adaptive_eager.config))
    assert f"max_nodes={adaptive_eager.config.max_nodes}" in repr(adaptive_eager.config)


@pytest.mark.parametrize("value", [0, 65537])
def test_value_out_of_range_is_refused_with_the_range(value: int) -> None:
    before = adaptive_eager.config.max_region_ops
    with pytest.raises(ValueError, match=f"max_region_ops is {value}, expected 1 to 65536"):
        adaptive_eager.config.max_region_ops = value
    assert adaptive_eager.config.max_region_ops == before


@pytest.mark.parametrize("value", ["9", 9.0, True, None])
def test_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"max_region_ops is .*, expected an integer"):
        adaptive_eager.config.max_region_ops = value


def test_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="did you mean max_region_ops"):
        adaptive_eager.config.max_region_op = 1
    with pytest.raises(AttributeError, match="did you mean max_nodes"):
        _ = adaptive_eager.config.max_node
    with pytest.raises(KeyError, match="there are max_region_ops, "):
        _ = adaptive_eager.config["zzz"]


def test_mode_is_set_and_scoped() -> None:
    adaptive_eager.set_mode("eager")
    with adaptive_eager.using_mode("adaptive"):
        assert adaptive_eager.mode() == "adaptive"
    assert adaptive_eager.mode() == "eager"


def test_mode_is_restored_after_an_error() -> None:
    adaptive_eager.set_mode("eager")
    with pytest.raises(ZeroDivisionError), adaptive_eager.using_mode("adaptive"):
        _ = 1 / 0
    assert adaptive_eager.mode() == "eager"


def test_unknown_mode_is_refused_with_both_names() -> None:
    with pytest.raises(ValueError, match="'eager' or 'adaptive'"):
        adaptive_eager.set_mode("fast")
