"""Start SOLAR and the shop; stop both with Ctrl-C."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

from app.api.tokens import new_token_key

#: Seconds until both must answer.
PATIENCE = 60.0


@contextmanager
def running(data: str, solar_port: int = 8000, shop_port: int = 8100) -> Iterator[str]:
    """Run SOLAR and the shop as processes; yield the address of the shop once both answer."""
    solar, shop = (f"http://127.0.0.1:{port}" for port in (solar_port, shop_port))
    python = [sys.executable, "-m"]
    environ = {
        **os.environ, "SHOP_SOLAR_URL": solar, "SHOP_DATABASE": os.path.join(data, "shop.db"),  # noqa: PTH118
        "SOLAR_DATA_DIR": os.path.join(data, "solar"), "SOLAR_TOKEN_KEYS": new_token_key("k1"),  # noqa: PTH118
    }  # fmt: skip
    os.makedirs(data, exist_ok=True)  # noqa: PTH103
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command, address in (
            (["app", "serve", "--port", str(solar_port)], f"{solar}/readyz"),
            (["uvicorn", "examples.shop.shop:app", "--port", str(shop_port)], shop),
        ):
            started.append(subprocess.Popen([*python, *command], env=environ))  # noqa: S603
            _wait(address, started[-1])
        yield shop
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def _wait(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a server answers."""
    ends = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < ends:
        try:
            if httpx.get(address, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"{address}: no answer")


def main(arguments: Sequence[str]) -> None:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="examples/shop/data", help="folder of both data sets")
    parser.add_argument("--port", type=int, default=8000, help="port of SOLAR")
    parser.add_argument("--shop-port", type=int, default=8100, help="port of the shop")
    options = parser.parse_args(arguments)
    with running(options.data, options.port, options.shop_port) as shop:
        print(f"shop: {shop}  console: http://127.0.0.1:{options.port}/console/", flush=True)  # noqa: T201
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
