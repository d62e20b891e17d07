"""curl for a machine without one that has `--json` (7.82): the options that the documents use."""

import argparse
import sys
from pathlib import Path

import httpx


def main() -> int:
    """Send one request and print the body."""
    parser = argparse.ArgumentParser(prog="curl", allow_abbrev=False)
    for flag in ("-X", "--json", "--data-binary", "-d", "-o", "-w"):
        parser.add_argument(flag)
    parser.add_argument("-H", action="append", default=[])
    for flag in ("-s", "-S", "-f", "-i", "--fail-with-body"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("url")
    options = parser.parse_args([word for word in sys.argv[1:] if word != "-sS"])
    headers = {"content-type": "application/json"} if options.json is not None else {}
    headers |= {
        name.lower(): text.strip() for name, _, text in (h.partition(":") for h in options.H)
    }
    body = next((b for b in (options.json, options.data_binary, options.d) if b is not None), None)
    content = None if body is None else _content(body)
    url = options.url if "://" in options.url else f"http://{options.url}"
    method = options.X or ("GET" if content is None else "POST")
    answer = httpx.request(
        method, url, content=content, headers=headers, timeout=60, trust_env=False
    )
    if options.i:
        head = "\n".join(f"{name}: {text}" for name, text in answer.headers.items())
        sys.stdout.write(f"HTTP/1.1 {answer.status_code}\n{head}\n\n")
    if options.o:
        Path(options.o).write_bytes(answer.content)
    else:
        sys.stdout.write(answer.text)
    if options.w:
        sys.stdout.write(options.w.replace("%{http_code}", str(answer.status_code)))
    return 0


def _content(given: str) -> bytes:
    if not given.startswith("@"):
        return given.encode()
    return sys.stdin.buffer.read() if given == "@-" else Path(given[1:]).read_bytes()


if __name__ == "__main__":
    sys.exit(main())
