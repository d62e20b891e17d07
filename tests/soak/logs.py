"""Errors in the log of a service: there is none, in faults neither."""

import json
import re
from collections import Counter
from pathlib import Path

from tests.soak.ledger import Problems

SERIOUS = ("error", "critical")


def check_log(log: Path, problems: Problems) -> Counter[str]:
    """Note errors and lines that are not JSON; count the warnings by message, without numbers."""
    warnings = Counter[str]()
    with log.open(errors="replace") as file:
        for line in file:
            try:
                fields = json.loads(line)
            except ValueError:
                problems.add(f"log: a line that is not JSON: {line[:200].strip()}")
                continue
            if fields["level"] in SERIOUS:
                shown = {name: str(value)[-600:] for name, value in fields.items()}
                problems.add(f"log: {shown}")
            elif fields["level"] == "warning":
                warnings[re.sub(r"\d+(\.\d+)?", "N", fields["message"])[:120]] += 1
    return warnings
