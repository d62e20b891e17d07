"""Names in messages: quoting, listing, and suggestions for misspelt names."""

from collections.abc import Sequence
from difflib import SequenceMatcher

#: Limits: characters of a quoted name, names to compare, names to list.
MOST_CHARACTERS, MOST_COMPARED, MOST_LISTED = 64, 1000, 10
#: difflib compares only a shortlist, chosen by the last letters, and only the ends of the names.
#: So 1,000 names take less than 1 ms; two names of 64 equal letters alone would take 0.8 ms.
_SHORTLIST, _END, _COMPARED_END = 4, 8, 20
#: Minimum share of equal letters, as in difflib.get_close_matches.
_MIN_SIMILARITY = 0.6


def quoted(name: str) -> str:
    """Quote a name for a message: at most 64 characters, all printable.

    >>> quoted("price" + chr(7)), quoted(70 * "a")[-4:]
    ('"price?"', 'aa…"')
    """
    shown = name[:MOST_CHARACTERS] + "…" * (len(name) > MOST_CHARACTERS)
    printable = "".join(one if one.isprintable() and one != '"' else "?" for one in shown)
    return f'"{printable}"'


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Find the known name that was probably meant; None if there is none.

    >>> nearest("prise", ["bm25", "price"])
    'price'
    >>> nearest("colour", ["bm25", "price"])
    """
    letters, size = set(name[-_END:]), len(name)
    similar = [one for one in known[:MOST_COMPARED] if abs(len(one) - size) <= 2]
    differ = [len(letters ^ set(one[-_END:])) for one in similar]
    short = sorted(range(len(similar)), key=differ.__getitem__)[:_SHORTLIST]
    scored = [(_similarity(similar[at], name), similar[at]) for at in short]
    return max((one for one in scored if one[0] >= _MIN_SIMILARITY), default=(0.0, None))[1]


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, one[-_COMPARED_END:], other[-_COMPARED_END:]).ratio()


def listed(names: Sequence[str]) -> str:
    """Join at most ten names with commas.

    >>> listed(["a", "b"]), listed([str(at) for at in range(11)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …')
    """
    shown = [
        name if len(name) <= MOST_CHARACTERS and name.isprintable() else quoted(name)
        for name in names[:MOST_LISTED]
    ]
    return ", ".join([*shown, "…"] if len(names) > MOST_LISTED else shown)


def unknown_name(kind: str, name: str, known: Sequence[str]) -> str:
    """Message for an unknown name.

    >>> unknown_name("feature", "prise", ["bm25", "price"])
    'unknown feature "prise"; did you mean "price"?'
    >>> unknown_name("field", "docs", ["documents", "ids"])
    'unknown field "docs"; expected documents, ids'
    """
    meant = nearest(name, known)
    if meant is not None:
        return f"unknown {kind} {quoted(name)}; did you mean {quoted(meant)}?"
    return f"unknown {kind} {quoted(name)}; expected {listed(known)}"


def tenant_of_source(source: str) -> str:
    """Return the tenant of the key in the source of feedback, `KEY/given`; empty if it has none.

    >>> tenant_of_source("web@acme/shop"), tenant_of_source("web@acme"), tenant_of_source("web/a@b")
    ('acme', 'acme', '')
    """
    key = source.partition("/")[0]
    return key.rpartition("@")[2] if "@" in key else ""
