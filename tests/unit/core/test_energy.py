from headway.core.contexts import context_memory
from headway.core.energy import DeviceUse, split_energy


def use(name, share, seconds=60.0):
    return DeviceUse(name=name, share=share, seconds=seconds)


def test_energy_goes_by_share_times_time():
    split = split_energy(9000, [use("a", 0.5), use("b", 0.5, 30.0)])
    assert dict(split.parts) == {"a": 6000, "b": 3000}
    assert "in proportion to share of the device x time" in split.rule


def test_two_uses_of_one_name_are_added_up():
    assert split_energy(100, [use("a", 0.25), use("a", 0.25), use("b", 0.5)]).of("a") == 50


def test_what_nobody_used_is_nobodys():
    split = split_energy(500, [use("a", 0.0), use("b", 1.0, 0.0)])
    assert (split.of("a"), split.of("b"), split.of("c"), split.unattributed_mj) == (0, 0, 0, 500)
    assert split_energy(500, []).unattributed_mj == 500


def test_an_empty_slice_is_paid_by_those_who_are_there():
    # Two slices of seven are given; the other five draw what an idle part draws.
    split = split_energy(700, [use("a", 1 / 7), use("b", 1 / 7)])
    assert (split.of("a"), split.of("b"), split.unattributed_mj) == (350, 350, 0)


def test_a_context_is_planned_with_its_upper_bound():
    for architecture in ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell", None):
        context = context_memory(architecture)
        assert context.low <= context.value <= context.high
        assert context.origin == "assumed"
    assert context_memory("Hopper").high > context_memory("Turing").high
