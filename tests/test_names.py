"""Names in messages: short, printable, and found quickly for any input."""

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from time import thread_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.names import listed, nearest, quoted, unknown_name

# The required limits, not imported on purpose.
MOST_CHARACTERS, MOST_COMPARED, MOST_LISTED = 64, 1000, 10
#: A millisecond on a quiet machine, as a multiple of a plain loop (0.35 ms there), which a busy
#: machine slows down too.
LOOPS = 2.9
TRIES = 40  # the fastest try of each counts

anything = st.text(max_size=200)
features = st.text(  # as in a model: no control characters
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters=","), min_size=1, max_size=128
)
words = st.text("abcde_", min_size=1, max_size=12)


@given(anything)
def test_a_quoted_name_has_at_most_64_printable_characters(name: str) -> None:
    message = quoted(name)
    assert message.isprintable()
    assert (message[0], message[-1]) == ('"', '"')
    within = message[1:-1]
    assert '"' not in within
    assert len(within) == (len(name) if len(name) <= MOST_CHARACTERS else MOST_CHARACTERS + 1)
    assert within.endswith("…") or len(name) <= MOST_CHARACTERS
    for shown, given_ in zip(within, name[:MOST_CHARACTERS], strict=False):
        assert shown == (given_ if given_.isprintable() and given_ != '"' else "?")


@given(st.lists(features, max_size=30, unique=True))
def test_at_most_ten_names_are_listed(names: list[str]) -> None:
    message = listed(names)
    shown = message.split(", ") if message else []
    assert len(shown) == min(len(names), MOST_LISTED) + (len(names) > MOST_LISTED)
    assert (message.endswith(", …")) == (len(names) > MOST_LISTED)
    assert all(len(one) <= MOST_CHARACTERS + 3 for one in shown)
    assert message.isprintable()


@given(anything, st.lists(features, max_size=30, unique=True))
def test_a_message_is_bounded_and_printable(name: str, known: list[str]) -> None:
    message = unknown_name("feature", name, known)
    assert message.isprintable()
    assert message.startswith(f"unknown feature {quoted(name)}; ")
    assert len(message) < 2 * (MOST_CHARACTERS + 3) + MOST_LISTED * (MOST_CHARACTERS + 5) + 40


@given(words, st.lists(words, max_size=30, unique=True))
def test_a_suggested_name_exists_and_is_similar(name: str, known: list[str]) -> None:
    found = nearest(name, known)
    if found is not None:
        assert found in known
        assert abs(len(found) - len(name)) <= 2
        assert SequenceMatcher(None, found, name).ratio() >= 0.6
        assert unknown_name("field", name, known).endswith(f'did you mean "{found}"?')


@given(st.permutations("abcdefghijkl"), st.integers(4, 12), st.data())
def test_one_typing_error_is_corrected(letters: list[str], size: int, data: st.DataObject) -> None:
    meant = "".join(letters[:size])
    at = data.draw(st.integers(0, len(meant) - 1))
    slips = {
        "left out": meant[:at] + meant[at + 1 :],
        "doubled": meant[:at] + meant[at] + meant[at:],
        "another": meant[:at] + "z" + meant[at + 1 :],
    }
    others = ["unlike", "x", "quite another one", "0123456789"]
    assert nearest(data.draw(st.sampled_from(sorted(slips.values()))), [*others, meant]) == meant


def seconds(act: Callable[[], object]) -> float:
    start = thread_time()
    act()
    return thread_time() - start


def plain_loop() -> int:
    total = 0
    for at in range(10_000):
        total += at % 7
    return total


def loops(act: Callable[[], object]) -> float:
    """The time of a call as a multiple of a plain loop, measured in turns."""
    tries = [(seconds(act), seconds(plain_loop)) for _ in range(TRIES)]
    return min(own for own, _ in tries) / min(plain for _, plain in tries)


@given(
    st.text("ab", min_size=1, max_size=200),
    st.lists(st.text("abc", min_size=100, max_size=128), min_size=1, max_size=40, unique=True),
)
@example("a" * 200, ["a" * 128])
@example("ab" * 32, ["ba" * 32, "ab" * 31])
def test_many_long_names_are_compared_within_a_millisecond(name: str, some: list[str]) -> None:
    known = [one[: 100 + at % 29] + str(at) for at, one in enumerate(some * (4000 // len(some)))]
    assert loops(lambda: unknown_name("feature", name, known)) <= LOOPS


@pytest.mark.parametrize("size", [1, 5, 12, 13, 64, 128])
def test_names_of_the_same_length_and_letters_are_compared_within_a_millisecond(size: int) -> None:
    """The shortlist cannot distinguish them: the worst case for difflib."""
    known = [f"{at:04d}".rjust(size, "0")[-size:] for at in range(MOST_COMPARED)]
    name = "0" * (size - 1) + "x"
    assert loops(lambda: unknown_name("feature", name, known)) <= LOOPS


def test_names_beyond_the_first_thousand_are_not_compared() -> None:
    known = [f"q{at}" for at in range(MOST_COMPARED)]
    assert nearest("price", [*known[1:], "prices"]) == "prices"
    assert nearest("price", [*known, "prices"]) is None


def test_the_messages_about_unknown_names_equal_the_documented_ones() -> None:
    fields = ("documents", "ids", "features", *map(str, range(9)))
    assert re.fullmatch(
        r'unknown field "docs"; expected documents, ids, features, (\d, ){7}…',
        unknown_name("field", "docs", fields),
    )
    message = unknown_name("feature", "prise", ("bm25", "price"))
    assert message == 'unknown feature "prise"; did you mean "price"?'
