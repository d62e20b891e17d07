"""The examples of the client's README, in order, in one session."""

import subprocess
import sys
from pathlib import Path

from tests.api.services import ROOT, serving
from tests.documents import blocks
from tests.servers import TIMEOUT

PAGE = ROOT / "clients" / "python" / "README.md"
MARK = "@@@@ next example"
#: Other tests may load the machine, so the examples get more time than a page has.
SLOW = "import solar_client.client, solar_client.async_client\n" + "".join(
    f"solar_client.{kind}.rank.__kwdefaults__['timeout'] = {TIMEOUT}\n"
    for kind in ("client.Solar", "async_client.AsyncSolar")
)


def test_the_examples_of_the_readme_print_what_it_shows(tmp_path: Path) -> None:
    found = [block for block in blocks(PAGE) if block.language in ("python", "text")]
    examples = [block.text for block in found if block.language == "python"]
    script = f"print({MARK!r})\n".join([SLOW, *examples])
    with serving(data=tmp_path) as service:
        ran = subprocess.run(
            [sys.executable, "-c", script.replace("http://localhost:8000", service.url)],
            capture_output=True, text=True, check=False, timeout=6 * TIMEOUT,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    outputs = ran.stdout.split(f"{MARK}\n")[1:]
    shown = [
        after.text if after.language == "text" else ""
        for block, after in zip(found, [*found[1:], found[0]], strict=True)
        if block.language == "python"
    ]
    assert outputs == shown
    assert len(examples) >= 9
