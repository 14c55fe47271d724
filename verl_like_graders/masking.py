"""Mask secrets in text that is printed, written or sent.

A secret is recognised by its form (``sk-...``, a password in a URL, ``api_key=...``), or because it is the value of an
environment variable with a secret's name (``OPENAI_API_KEY``). Other secrets are not masked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

MASK = "***"
SHORTEST = 8  # minimum length of a value searched for everywhere: a shorter one occurs within other words

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET = {
    "password",
    "passwords",
    "passwd",
    "pw",
    "passphrase",
    "pwd",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "authorization",
}
_SECRET |= {"apikey", "bearer", "cookie", "token", "signature", "sas", "auth"}
_KEYS_OF = {"api", "access", "private", "secret", "account", "license", "encryption", "signing", "storage", "service"}
_KEYS_OF |= {"x", "wandb", "hf", "openai", "anthropic", "mlflow", "swanlab", "ssh"}
_PLACES = {"env", "file", "path", "name", "url", "folder", "dir"}  # last words of names that say where a secret is
# Words next to "token" that make it a token of a text.
_OF_TEXT = {
    "pad",
    "eos",
    "bos",
    "unk",
    "sep",
    "cls",
    "mask",
    "stop",
    "special",
    "image",
    "max",
    "min",
    "num",
    "per",
    "id",
}
_OF_TEXT |= {
    "ids",
    "end",
    "start",
    "level",
    "mean",
    "added",
    "extra",
    "think",
    "prefix",
    "loss",
    "count",
    "limit",
    "type",
}

# Names have limits, because a name of unlimited length would make the time quadratic in the length of a word.
_FORMS = re.compile(
    r"(?P<url>[a-z][a-z0-9+.-]{0,40}://[^\s:/@'\"]*:)(?P<password>[^\s/@'\"]+)(?=@)"
    r"|(?P<user>(?:https?|s3|gs|hdfs|ftp|ssh)://)(?P<name>[^\s:/@'\"]{8,})(?=@)"
    r"|(?P<parameter>[?&;](?:[\w.-]{0,60}(?:key|token(?!s)|secret|password|passwd|pwd|signature|credential|auth)[\w.-]{0,60}|sig)=)"
    r"(?P<value>[^\s&#;'\"]+)"
    r"|(?P<scheme>\b(?-i:Bearer|Basic) )(?P<credential>(?=[A-Za-z+/=._~-]*[0-9])[A-Za-z0-9+/=._~-]{8,})"
    r"|(?P<assigned>\b(?:[\w-]{0,60}[_-])?(?:password|passwd|secret|api[_-]?key|access[_-]?key|auth[_-]?token|authorization)"
    r"['\"]?\s*[=:]\s*['\"]?(?:Bearer |Basic )?)(?P<text>(?![$*])[^\s'\",;&})\]]{8,})"
    r"|(?<![\w-])(?:(?:sk|pk|rk)-|(?:sk|pk|rk)_(?:live|test)_)(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}|\bhf_[A-Za-z0-9]{16,}|\bgh[opsur]_[A-Za-z0-9]{20,}"
    r"|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[abeoprs]-[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bAIza[\w-]{30,}|(?<![\w-])eyJ[A-Za-z0-9_-]{7,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.IGNORECASE,
)
# Every form contains one of these, in lower case; a search for them takes a hundredth of the time of the forms.
_MARKS = (
    *("://", "key", "token", "secret", "passw", "pwd", "signature", "credential", "auth", "sig=", "bearer ", "basic "),
    *("sk-", "pk-", "rk-", "sk_", "pk_", "rk_", "hf_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_"),
    *("glpat-", "xox", "akia", "asia", "aiza", "eyj", "-----begin "),
)
_HEADS = ("url", "user", "parameter", "scheme", "assigned")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a name says that its value is a secret; ``max_tokens`` and ``eos_token`` do not."""
    words = [word.lower() for word in _WORD.findall(name)]
    if words and words[-1] in _PLACES:
        return False
    for before, word in zip(["", *words], words, strict=False):
        if word == "token" and _OF_TEXT.intersection(words):
            continue
        if word in _SECRET or (word in ("key", "keys") and before in _KEYS_OF):
            return True
    return False


def masked_text(text: str) -> str:
    """Return the text with its secrets masked."""
    return masking()(text)


def masking() -> Callable[[str], str]:
    """Return :func:`masked_text` with the secrets of the environment as it is now: quicker for many texts."""
    secrets = list(_of_environment())

    def mask(text: str) -> str:
        for secret in secrets if len(text) >= SHORTEST else ():
            text = text.replace(secret, MASK)
        lowered = text.lower()
        return _FORMS.sub(_masked_form, text) if any(mark in lowered for mark in _MARKS) else text

    return mask


def _masked_form(found: re.Match[str]) -> str:
    head = next((found[name] for name in _HEADS if found[name]), "")
    return f"{head}{MASK}"


def _of_environment() -> Iterator[str]:
    """Yield the values of variables with a secret's name, longest first because one may contain another."""
    found = {value for name, value in os.environ.items() if len(value) >= SHORTEST and is_secret_name(name)}
    yield from sorted((value for value in found if not value.startswith("/")), key=len, reverse=True)
