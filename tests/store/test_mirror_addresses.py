"""Passwords and tokens in a mirror's address, or in the environment, are shown to nobody."""

import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirror_tools import infuser, make_store

from infuser_core.errors import StoreError, UsageError
from infuser_core.mirror.address import redact, scrub
from infuser_core.mirror.remote import Remote

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=9, max_size=20)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/folder", "s3://bucket/folder"),
        ("sftp://me:geheim@host:22/folder", "sftp://***@host:22/folder"),
        ("sftp://me@host/folder", "sftp://***@host/folder"),
        ("sftp://me:a/b@c@host/folder", "sftp://***@host/folder"),
        ("abfs://box/folder?sig=abc", "abfs://box/folder?***"),
        ("/plain/folder", "/plain/folder"),
        ("me:geheim@host/folder", "***@host/folder"),
    ],
)
def test_an_address_is_shown_without_user_password_and_query(url: str, shown: str):
    assert redact(url) == shown


@given(user=WORDS, password=WORDS, token=WORDS)
def test_no_secret_of_an_address_survives_in_foreign_text(user: str, password: str, token: str):
    url = f"sftp://{user}:{password}@host/folder?token={token}"
    said = scrub(f"cannot open {url} as {user}:{password} with {token}\nor {password}", url)
    assert password not in said and token not in said and "host/folder" in said
    assert "\n" not in said


def test_an_escaped_password_is_hidden_in_both_spellings():
    plain = "p@ss/word!"
    said = scrub(f"refused {plain} and {quote(plain, safe='')}", f"sftp://me:{quote(plain, safe='')}@host/x")
    assert said == "refused *** and ***"


def test_secrets_of_the_environment_are_hidden_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "fake-secret-value-1")
    monkeypatch.setenv("HF_TOKEN", "hf_fake_token_value")
    assert scrub("sent fake-secret-value-1 and hf_fake_token_value", "s3://b") == "sent *** and ***"


def test_an_error_of_the_command_shows_no_password(tmp_path: Path):
    make_store(tmp_path / "a", artifacts=1)
    for url in ("sftp://me:geheimes-wort@127.0.0.1:9/x", "ftp://me:geheimes-wort@127.0.0.1:9/x", "me:geheimes-wort@x"):
        ended = infuser("mirror", "push", url, store=tmp_path / "a")
        assert ended.returncode in (2, 3) and len(ended.stderr.splitlines()) == 2
        assert "127.0.0.1:9" in ended.stderr or "no address" in ended.stderr
        assert "geheimes-wort" not in ended.stdout + ended.stderr


def test_an_unknown_kind_of_address_and_a_missing_package_say_what_to_do():
    with pytest.raises(UsageError, match="no address of a mirror"):
        Remote("plain-folder")
    with pytest.raises(StoreError, match="Protocol not known"):
        Remote("nonsense://x/y")
    if "paramiko" not in sys.modules:
        with pytest.raises(UsageError, match="not installed") as caught:
            Remote("sftp://host/x")
        assert "pip install" in caught.value.hint
