"""Tables whose data cannot be had."""

from tools.paper.inputs import Inputs
from tools.paper.page import NO_DATA, Part


def sparse_data(_: Inputs) -> Part:
    """RankSVM paper, Tables 8 and 9: CTR and KDD2012b in the authors' form are not public."""
    return Part(f"{NO_DATA} (CTR and KDD2012b are not public)", "")
