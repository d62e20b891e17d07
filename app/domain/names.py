"""Names in messages: what a caller misspelt, and what was probably meant."""

from collections.abc import Sequence
from difflib import SequenceMatcher

#: Characters of a name that are repeated, names that are compared, and names that are listed.
LONGEST, MOST_COMPARED, MOST_LISTED = 64, 1000, 10
#: By the letters at the end of names difflib gets a short list, and of each name the end: so 1,000
#: names stay below 1 ms. Two names of 64 equal letters would take 0.8 ms.
_SHORTLIST, _END, _COMPARED_END = 4, 8, 20
#: The least share of equal letters, as in difflib.get_close_matches.
_ALIKE = 0.6


def quoted(name: str) -> str:
    """A name as a message repeats it: at most 64 characters, printable ones.

    >>> quoted("price" + chr(7)), quoted(70 * "a")[-4:]
    ('"price?"', 'aa…"')
    """
    shown = name[:LONGEST] + "…" * (len(name) > LONGEST)
    printable = "".join(one if one.isprintable() and one != '"' else "?" for one in shown)
    return f'"{printable}"'


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that was probably meant, if there is one.

    >>> nearest("prise", ["bm25", "price"])
    'price'
    >>> nearest("colour", ["bm25", "price"])
    """
    letters, size = set(name[-_END:]), len(name)
    alike = [one for one in known[:MOST_COMPARED] if abs(len(one) - size) <= 2]
    differ = [len(letters ^ set(one[-_END:])) for one in alike]
    short = sorted(range(len(alike)), key=differ.__getitem__)[:_SHORTLIST]
    shares = [(_share(alike[at], name), alike[at]) for at in short]
    return max((one for one in shares if one[0] >= _ALIKE), default=(0.0, None))[1]


def _share(one: str, other: str) -> float:
    return SequenceMatcher(None, one[-_COMPARED_END:], other[-_COMPARED_END:]).ratio()


def listed(names: Sequence[str]) -> str:
    """Names with commas between, at most ten.

    >>> listed(["a", "b"]), listed([str(at) for at in range(11)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …')
    """
    shown = [
        name if len(name) <= LONGEST and name.isprintable() else quoted(name)
        for name in names[:MOST_LISTED]
    ]
    return ", ".join([*shown, "…"] if len(names) > MOST_LISTED else shown)


def unknown_name(kind: str, name: str, known: Sequence[str]) -> str:
    """What a message says of a name that is not known.

    >>> unknown_name("feature", "prise", ["bm25", "price"])
    'unknown feature "prise"; did you mean "price"?'
    >>> unknown_name("field", "docs", ["documents", "ids"])
    'unknown field "docs"; expected documents, ids'
    """
    meant = nearest(name, known)
    if meant is not None:
        return f"unknown {kind} {quoted(name)}; did you mean {quoted(meant)}?"
    return f"unknown {kind} {quoted(name)}; expected {listed(known)}"
