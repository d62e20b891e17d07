"""`python -m tools.paper FOLDER`: write docs/paper.md and its figures."""

import argparse
import time
from pathlib import Path

from tools.paper.inputs import Effort, Inputs
from tools.paper.items import ITEMS
from tools.paper.page import Item, Part, page

ROOT = Path(__file__).parents[2]
INTRO = """# The papers, reproduced

The tables and figures of the three papers that SOLAR is built on, published and measured. *SOLAR* is Wang et al. 2015,
*RankSVM* is Lee and Lin 2014, *Sparse ranking* is a summary of Stevens, Bengio and Singer 2013 (Stesinbio). This page is
generated, from data that is not in the repository:

```console
make paper DATA=FOLDER
```

`FOLDER` has the data sets as folders `MQ2008`, `MQ2007`, `OHSUMED`, … (five folds, see
[Folds](evaluation.md#folds)) and `MSLR-sample` (`train.txt`, `test.txt`). What is missing is not run. This run took
{minutes:.0f} minutes of CPU time, and did not find: {missing}.

NDCG has LETOR's discount, as in the papers. A difference of more than 0.01 has its reason below the table. CPU times
compare rows of one table; those of the papers come from other machines."""


def main() -> None:
    """Make every item, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.paper", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the data sets")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of paper.md")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"folder: expected a directory, got {options.folder}")
    text = write_page(options.folder, options.docs)
    print(f"{options.docs / 'paper.md'}: {len(text):,} characters")


def write_page(folder: Path, docs: Path, effort: Effort | None = None) -> str:
    """Write the page and its figures below `docs`; return the page."""
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    inputs = Inputs(folder, docs / "figures", effort or Effort())
    made = [(item, _made(item, inputs)) for item in ITEMS]
    missing = ", ".join(inputs.missing) or "nothing"
    text = page(INTRO.format(minutes=time.process_time() / 60.0, missing=missing), made)
    (docs / "paper.md").write_text(text, encoding="utf-8")
    return text


def _made(item: Item, inputs: Inputs) -> Part:
    began = time.process_time()
    part = item.make(inputs)
    name = f"{item.paper} {', '.join(item.names)}"
    print(f"{time.process_time() - began:7.1f} s  {name}: {part.status}", flush=True)
    return part


if __name__ == "__main__":
    main()
