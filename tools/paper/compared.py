"""Tables of measured beside published figures, with a reason for every larger difference."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from tools.paper.reasons import REASONS
from tools.reference.markdown import table

#: A larger difference needs a reason.
TOLERANCE = 0.01
UNKNOWN = "no reason known"


class Compared(NamedTuple):
    """Figures of one algorithm; `published` may be shorter than `measured`, or absent."""

    algorithm: str
    measured: Sequence[float]
    published: Sequence[float] | None = None
    more: Sequence[str] = ()

    @property
    def largest(self) -> float:
        """The difference with the largest absolute value; 0 without published figures."""
        pairs = zip(self.measured, self.published or (), strict=False)
        return max((measured - published for measured, published in pairs), key=abs, default=0.0)


def compared_table(
    where: str,
    data: str,
    measures: Sequence[str],
    rows: Sequence[Compared],
    more: Sequence[str] = (),
) -> str:
    """Format rows of the table `where` on `data`; reasons follow as a list."""
    head = [data, *measures, *more, "published", "largest difference"]
    text = table(head, [_cells(row) for row in rows])
    reasons = [f"- **{row.algorithm}**: {reason(where, data, row)}." for row in rows if needs(row)]
    return "\n\n".join([text, "\n".join(reasons)]) if reasons else text


def needs(row: Compared) -> bool:
    """Whether a row differs by more than the tolerance, in the four digits that are shown."""
    return round(abs(row.largest), 4) > TOLERANCE


def reason(where: str, data: str, row: Compared) -> str:
    """Return the reason of a difference; warn if there is none."""
    found = REASONS.get((where, data, row.algorithm))
    if found is None:
        print(
            f"warning: {where}, {data}, {row.algorithm}: {row.largest:+.4f}, {UNKNOWN}",
            file=sys.stderr,
        )
    return found or UNKNOWN


def _cells(row: Compared) -> list[str]:
    published = " / ".join(f"{value:.4f}" for value in row.published or ()) or "–"
    largest = f"{row.largest:+.4f}".replace("-", "−") if row.published else ""
    return [
        row.algorithm,
        *(f"{value:.4f}" for value in row.measured),
        *row.more,
        published,
        largest,
    ]
