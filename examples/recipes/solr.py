"""Feature vectors of Solr's `[features]` transformer, as documents of /rank.

Written from the Solr Reference Guide; not run against Solr.
"""

import math
from collections.abc import Mapping
from typing import Any

#: The field of a document that the transformer adds.
FIELD = "[features]"


def search_parameters(
    query: str, store: str, efi: Mapping[str, str], rows: int = 100
) -> dict[str, str]:
    r"""Return the parameters of a search that also returns the features of each document.

    `efi` is what the features need to know of the request, such as the user's words.

    >>> search_parameters("title:lamp", "shop", {"user_query": "dad's lamp"})["fl"]
    "id,score,[features store=shop efi.user_query='dad\\'s lamp']"
    """
    values = "".join(f" efi.{name}={_quoted(value)}" for name, value in efi.items())
    fields = f"id,score,[features store={store}{values}]"
    return {"q": query, "fl": fields, "rows": str(rows), "wt": "json"}


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def documents(
    answer: Mapping[str, Any], key: str = "id", delimiter: str = "=", separator: str = ","
) -> list[dict[str, Any]]:
    """Return the documents of an answer in the order of Solr, with their features.

    `key` is the unique key of the schema. `delimiter` and `separator` are those of the transformer
    in `solrconfig.xml`. NaN stands for no value; it is left out, and SOLAR takes 0.

    >>> found = {"id": "d7", "[features]": "in_title=9.5,is_book=0.0,price=NaN"}
    >>> documents({"response": {"docs": [found]}})
    [{'id': 'd7', 'features': {'in_title': 9.5, 'is_book': 0.0}}]
    """
    return [
        {"id": str(one[key]), "features": _values(one.get(FIELD, ""), delimiter, separator)}
        for one in answer["response"]["docs"]
    ]


def _values(text: str, delimiter: str, separator: str) -> dict[str, float]:
    pairs = (one.rpartition(delimiter) for one in text.split(separator) if one)
    found = {name: float(value) for name, _, value in pairs}
    return {name: value for name, value in found.items() if not math.isnan(value)}
