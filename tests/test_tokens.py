"""Tokens of impressions: only what a key has signed, for this viewer, until it ends."""

import hmac
import os
import re
import subprocess
import sys
from base64 import b64encode, urlsafe_b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.auth import new_key
from app.api.dependencies import check_settings
from app.api.tokens import (
    Expired,
    Forged,
    TokenKeys,
    base36,
    new_token_key,
    read_token_keys,
)
from app.config import Settings
from app.errors import SolarError
from tests.commands import solar

ROOT = Path(__file__).parents[1]

KEYS = TokenKeys({"k2": bytes(range(32)), "k1": bytes(range(32, 64))}, 60.0)
NOW = 1_790_000_000.0
names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=128)


@given(names, texts, texts)
def test_a_token_names_its_impression_to_its_viewer(model: str, request: str, viewer: str) -> None:
    token = KEYS.sign(model, request, viewer, NOW)
    found = KEYS.verify(token, viewer, NOW + 59.0)
    assert (found.model, found.request, len(found.code)) == (model, request, 16)


@given(texts, texts, st.data())
def test_a_token_with_any_bit_flipped_is_forged(
    request: str, viewer: str, data: st.DataObject
) -> None:
    token = KEYS.sign("books", request, viewer, NOW).encode()
    at = data.draw(st.integers(0, 8 * len(token) - 1))
    flipped = bytearray(token)
    flipped[at // 8] ^= 1 << at % 8
    with pytest.raises(Forged):
        KEYS.verify(flipped.decode("latin-1"), viewer, NOW)


@given(texts, texts, texts)
def test_a_token_of_another_viewer_is_forged(request: str, viewer: str, other: str) -> None:
    token = KEYS.sign("books", request, viewer, NOW)
    if viewer != other:
        with pytest.raises(Forged):
            KEYS.verify(token, other, NOW)


def test_a_token_ends() -> None:
    token = KEYS.sign("books", "r", "", NOW)
    KEYS.verify(token, "", NOW + 60.0)
    with pytest.raises(Expired):
        KEYS.verify(token, "", NOW + 61.0)


def test_a_later_end_is_forged() -> None:
    version, kid, _, about, code = KEYS.sign("books", "r", "", NOW).split(".")
    later = ".".join([version, kid, base36(int(NOW) + 10**6), about, code])
    with pytest.raises(Forged):
        KEYS.verify(later, "", NOW)


def test_keys_are_replaced_without_losing_tokens() -> None:
    old = TokenKeys({"k1": bytes(range(32, 64))}, 60.0).sign("books", "r", "", NOW)
    assert old.split(".")[1] == "k1"
    assert KEYS.verify(old, "", NOW).request == "r"
    assert KEYS.sign("books", "r", "", NOW).split(".")[1] == "k2"
    with pytest.raises(Forged):
        TokenKeys({"k2": bytes(range(32))}, 60.0).verify(old, "", NOW)


@given(st.binary(min_size=1, max_size=200), texts)
def test_the_code_is_that_of_hmac_sha256(key: bytes, viewer: str) -> None:
    """The key is prepared by hand, so its length is that of a block, less or more."""
    token = TokenKeys({"k1": key}, 60.0).sign("books", "r", viewer, NOW)
    text, _, code = token.rpartition(".")
    message = f"solar/impression/1\0{text}\0{viewer}".encode()
    expected = hmac.digest(key, message, "sha256")[:16]
    assert urlsafe_b64decode(code + "==") == expected


def test_a_name_of_a_key_with_the_secret_of_another_is_forged() -> None:
    token = KEYS.sign("books", "r", "", NOW)
    with pytest.raises(Forged):
        KEYS.verify(token.replace("1.k2.", "1.k1."), "", NOW)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "1",
        "1....",
        "x" * 10_000,
        "2" + KEYS.sign("b", "r", "", NOW)[1:],
        "1.k2.é.YQ." + 22 * "A",
    ],
)
def test_other_texts_are_forged(token: str) -> None:
    with pytest.raises(Forged):
        KEYS.verify(token, "", NOW)


def test_a_new_key_is_an_entry_of_the_setting() -> None:
    first, second = new_token_key("k1"), new_token_key("k2")
    keys = read_token_keys(f"{second},{first}", 60.0)
    assert keys is not None
    assert keys.sign("books", "r", "", NOW).startswith("1.k2.")


@pytest.mark.parametrize(("given", "name"), [((), r"k[0-9]{6}"), (("k7",), "k7")])
def test_solar_key_makes_a_token_key(
    capsys: pytest.CaptureFixture[str], given: tuple[str, ...], name: str
) -> None:
    """The messages of a bad setting name `solar key --token`, without a name."""
    assert solar("key", *given, "--token") == 0
    about, entry = capsys.readouterr().out.strip().split(": ")
    assert about == "entry for SOLAR_TOKEN_KEYS of the service"
    assert re.fullmatch(name, entry.split(":")[0])
    assert read_token_keys(entry, 60.0) is not None


def test_a_key_of_a_client_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert solar("key") == 2
    printed = capsys.readouterr()
    assert (printed.out, "expected NAME" in printed.err) == ("", True)


def test_without_keys_there_are_no_tokens() -> None:
    assert read_token_keys("", 60.0) is None
    assert read_token_keys(" , ", 60.0) is None


LONG = b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"k1:{b64encode(bytes(31)).decode()}", "at least 32 bytes, got 31"),
        (f"k1:{LONG},k1:{LONG}", "entry 2: expected another name"),
        ("k1:???", "expected base64"),
        (LONG, "name of 1 to 8 letters or digits"),
        (f"a-b:{LONG}", "name of 1 to 8 letters or digits"),
        (f"k1é:{LONG}", "name of 1 to 8 letters or digits"),
    ],
)
def test_a_bad_entry_is_refused_and_not_shown(text: str, expected: str) -> None:
    with pytest.raises(SolarError, match="SOLAR_TOKEN_KEYS") as refused:
        read_token_keys(text, 60.0)
    assert expected in str(refused.value)
    assert LONG not in str(refused.value)


SHORT = b64encode(bytes(range(31))).decode()
CLIENT = new_key("beacon", "rank")[1]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SOLAR_TOKEN_KEYS": f"k1:{SHORT}"}, "SOLAR_TOKEN_KEYS: entry 1: expected a key of at"),
        ({"SOLAR_TOKEN_KEYS": f"k1:{LONG},k1:{LONG}"}, "SOLAR_TOKEN_KEYS: entry 2: expected"),
        ({"SOLAR_TOKEN_KEYS": f"k1:{LONG}", "SOLAR_KEYS": CLIENT}, "SOLAR_KEYS: expected no key"),
    ],
    ids=["short", "doubled", "client named beacon"],
)
def test_bad_keys_end_the_start_with_a_message_and_without_the_secret(
    tmp_path: Path, environ: dict[str, str], expected: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "app", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")],
        env={**os.environ, **environ}, cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"solar: {expected}")
    assert ran.stderr.count("\n") == 1
    assert not {SHORT, LONG, CLIENT.split(":")[-1]} & set(re.split("[:, ]", ran.stderr))
    assert not (tmp_path / "data").exists()


def test_a_client_may_be_named_beacon_without_token_keys() -> None:
    check_settings(Settings(keys=CLIENT))
    with pytest.raises(SolarError, match="a new name keeps the secret valid"):
        check_settings(Settings(keys=CLIENT, token_keys=f"k1:{LONG}"))
