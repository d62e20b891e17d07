"""Pictures of the console, and the requests of an open console, from a service with visitors.

    python -m tools.console_pages screenshots build/console
    python -m tools.console_pages record benchmarks/console_requests.json

`screenshots` writes every page, light and dark; `make screenshots` calls it with `build/console`.
`docs/images` has seven of these. `record` writes the requests of a minute, which
`python -m benchmarks console` replays.
"""

import argparse
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, Request

from tests.api.services import serving
from tests.console.browser import ADDRESSES, ConsolePage, chromium
from tests.console.traffic import new_model, traffic, visit
from tests.waits import until

WIDTH, HEIGHT = 1120, 760
#: Visitors a second of each model.
RATES = {"books": 6.0, "music": 2.0}
#: Seconds of traffic before the pictures: the history has a point every 10 seconds.
HISTORY_SECONDS = 180.0
#: Colours of a picture, and its largest size in bytes.
COLOURS = 128
MOST_BYTES = 100_000
#: Seconds on each page of the recording.
VISITS = {"models": 15.0, "model": 20.0, "live": 20.0, "health": 5.0}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.console_pages", description=__doc__)
    parser.add_argument("what", choices=("screenshots", "record"))
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    with service() as url, chromium() as browser:
        if given.what == "record":
            given.target.write_text(json.dumps(recorded(browser, url), indent=1) + "\n")
        else:
            time.sleep(HISTORY_SECONDS)
            take_pictures(browser, url, given.target)


@contextmanager
def service() -> Iterator[str]:
    """Start a service with visitors, a resting model and some versions; yield its URL."""
    with serving() as running, running.client() as http:
        for name in (*RATES, "archive"):
            new_model(http, name)
        rng = np.random.default_rng(7)
        for _ in range(40):
            visit(http, "archive", rng)
        with running.client() as visitors, traffic(visitors, RATES):
            _begin_duel(http)
            for name in ("before-sale", "sale"):
                _wait_for_lists(http, 120)
                http.post("/models/books/versions", json={"name": name}).raise_for_status()
            yield running.url


def _begin_duel(http: httpx.Client) -> None:
    """Let two models follow one, and begin a duel with the one that starts from nothing."""
    _wait_for_lists(http, 60)
    followers: dict[str, dict[str, Any]] = {
        "books-cold": {"clicks": "click-skip-above", "start": "cold"},
        "books-fast": {"gamma": 100},
    }
    for name, settings in followers.items():
        http.put(f"/models/{name}", json={"follows": "books", **settings}).raise_for_status()
    body = {"challenger": "books-cold", "share": 0.5}
    http.put("/models/books/duel", json=body).raise_for_status()


def _wait_for_lists(http: httpx.Client, more: int) -> None:
    """Wait until a model has measured `more` lists."""
    start = http.get("/models/books").json()["queries"]
    until(lambda: http.get("/models/books").json()["queries"] >= start + more, seconds=120)


# ---- pictures ----


def take_pictures(browser: Browser, url: str, folder: Path) -> None:
    """Write every page, light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        for address in ADDRESSES:
            path = folder / f"console-{address}-{scheme}.png"
            take_picture(browser, url, address, scheme, path)
            print(f"{path}: {path.stat().st_size:,} bytes")
            if path.stat().st_size > MOST_BYTES:
                raise SystemExit(f"{path}: expected at most {MOST_BYTES:,} bytes")


def take_picture(
    browser: Browser, url: str, address: str, scheme: Literal["light", "dark"], path: Path
) -> None:
    """Write one page as it is seen at first."""
    page = browser.new_page(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme, reduced_motion="reduce"
    )
    console = ConsolePage(page, url)
    console.open(address, "books")
    _use(page, address)
    picture = Image.open(BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    page.close()
    if console.problems:
        raise SystemExit(f"{address}: {console.problems}")


def _use(page: Page, address: str) -> None:
    """Do what makes a page worth a picture, and let it settle."""
    if address == "try":
        page.get_by_role("button", name="Click").nth(3).click()
    page.wait_for_timeout(6000 if address == "live" else 2500)


# ---- requests ----


def recorded(browser: Browser, url: str) -> dict[str, Any]:
    """Return the requests of one console that visits some pages."""
    page = browser.new_page()
    console = ConsolePage(page, url)
    began, requests, opened = time.monotonic(), list[dict[str, Any]](), dict[Request, Any]()

    def note(request: Request) -> None:
        address = urlsplit(request.url)
        if address.path.startswith("/console/"):
            return  # the browser caches the files
        path = re.sub("^/models/[^/]+", "/models/{model}", address.path)
        query = re.sub("after=[0-9.]+", "after={after}", address.query)
        path += f"?{query}" if query else ""
        one = {"at": round(time.monotonic() - began, 2), "method": request.method, "path": path}
        opened[request] = one
        requests.append(one)

    def note_end(request: Request) -> None:
        if request in opened and opened[request]["path"].endswith("/stream"):
            opened[request]["until"] = round(time.monotonic() - began, 2)

    page.on("request", note)
    page.on("requestfinished", note_end)
    page.on("requestfailed", note_end)
    for address, seconds in VISITS.items():
        console.open(address, "books")
        page.wait_for_timeout(1000 * seconds)
    page.goto("about:blank")
    page.wait_for_timeout(500)
    return {"seconds": sum(VISITS.values()), "requests": requests}


if __name__ == "__main__":
    main()
