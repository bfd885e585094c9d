"""Text frames, as whatever a client may send."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from terminals import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rows", "cols", "resize", "ack"]) | st.text(max_size=3), inner)
    ),
    max_leaves=8,
)
SIDES = st.integers() | JSON
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@unhurried
@given(st.text() | JSON.map(json.dumps), st.booleans())
def test_anything_is_a_control_or_typed_whole(text: str, flow: bool) -> None:
    meaning = wire.parse(text, flow=flow)
    assert meaning is None or isinstance(meaning, wire.Resize | wire.Ack) or meaning == text.encode("utf-8", "replace")


@unhurried
@given(JSON | st.fixed_dictionaries({"rows": SIDES, "cols": SIDES}), st.booleans(), st.sampled_from([" ", "\n", ""]))
def test_an_object_with_only_resize_is_never_typed(size: object, flow: bool, space: str) -> None:
    meaning = wire.parse(space + json.dumps({"resize": size}) + space, flow=flow)
    assert meaning is None or isinstance(meaning, wire.Resize)
    if meaning is not None:
        assert 1 <= meaning.rows <= 1000 and 1 <= meaning.cols <= 1000


@unhurried
@given(st.integers(1, 65_535), st.integers(1, 65_535))
def test_a_size_is_taken_up_to_the_limit(rows: int, cols: int) -> None:
    size = wire.Resize(min(rows, 1000), min(cols, 1000))
    assert wire.parse(wire.message(resize={"cols": cols, "rows": rows}), flow=False) == size


@unhurried
@given(JSON | st.integers(), st.booleans())
def test_acknowledgements_count_only_with_flow(count: object, flow: bool) -> None:
    text = json.dumps({"ack": count})
    meaning = wire.parse(text, flow=flow)
    assert (meaning is None or isinstance(meaning, wire.Ack)) if flow else meaning == text.encode()


@unhurried
@given(st.text(st.sampled_from('[{":'), min_size=3000, max_size=4095))
def test_deep_nesting_is_text(text: str) -> None:
    assert wire.parse("{" + text, flow=True) == ("{" + text).encode()
