"""Golden cases of patterns over names, by Python's own expressions: what page and kernel must find too, and what both refuse."""

from __future__ import annotations

import random
import re
from typing import Any

__all__ = ["pattern_cases", "random_name", "random_pattern"]

_NAMES = [
    "module.decoder.layers.10.mlp.linear_fc1.weight",
    "layers.2.attention/q_proj",
    "MLP 1",
    "naïve_日本.𝒳",
    "a\nb\ta[0]{1}",
    "",
]
_PATTERNS = [
    "", "mlp", "mlp|attention", r"layers\.(\d+)\.(\w+)", r"layers\.(?P<layer>\d+)\.(?:mlp|attn)", r"(?<n>q|k|v)_proj", "(?i)mlp", "(?i)[^m]",
    r"(\w+\.?)+#", "(a+)+$", "^a", "t$", "^$", r"\bq", r"\B_", r"\B", r"(\B)", ".", ".+", ".+?", "[^.]+$", r"[\w.]+?\d", r"[\]\-\\^]", "[a-c-]", "[^-]", r"[^\s\S]", r"[\s\S]",
    r"\s", r"\S+", r"\D+", r"\W", r"\x61", r"\x{ef}", r"\x{20}", "ï", "日", "𝒳", "[𝒳]", r"[^\x00-\xff]", "a{2}", "a{0}", "(a){0}", "[a-z]{3,}", "[a-z]{2,4}?", "{", "a{", "a{,2}", "}", "]", r"\{1\}", r"\/",
    "(a*)*", "(a*)+", "(a|b*)*", "(?:(a)|(b))*", "(a?)*?b", "(a??)(a*)", "(|a)+", "()", "(?:)", "x||a", "(a|ab)(c|bcd)*", "(?:a{2}){2}", "((a)|b)?",
    "[[:alpha:]]+", "[[:^alpha:]]", "a(?i)B", "(?i:MLP).", "(?s).+", "(?m)^b$", "(?U)a+", "(?<1>a)", r"\pL+", r"\p{Greek}", r"\A.", r".\z", r"\Q[0]\E", r"\Qa", r"(?P<constructor>a)", "(?i)k", "^*", r"\b+", r"\0",
]  # fmt: skip
_REFUSED = [
    "(", ")", "a)", "a)(?:b", "[", "[a", "[a-", "[]", "[^]", "[z-a]", r"[a-\d]", "[[:letters:]]", "*", "a**", "a*+", "+a", "(?:*)", "{2}", "a{3,1}", "a{2}{3}", "a???",
    "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", r"(a)\1", r"(?<n>a)\k<n>", "(?P=n)", "(?<n>a)(?<n>b)", "(?<n", "(?P<n", "(?P<é>a)", r"\C", r"\Z", "\\", r"\é",
    r"\x6", r"\xzz", r"\u0041", r"\x{110000}", "a{1001}", "a{1000}{1000}", "(a{100}){11}", "(?:a?){1000}{1000}", "(a?){1000}" * 3, "((((a{999}){999}){999}){999}){999}", "a" * 501,
]  # fmt: skip
_IN_PYTHON = {
    r"\x{ef}": r"\xef",
    r"\x{20}": r"\x20",
    "a{,2}": r"a\{,2\}",
    "[[:alpha:]]+": "[A-Za-z]+",
    "[[:^alpha:]]": "[^A-Za-z]",
    "a(?i)B": "a(?i:B)",
    "(?U)a+": "a+?",
    "(?<1>a)": "(a)",
    r"\pL+": r"(?u:[^\W\d_]+)",
    r"\p{Greek}": "[\u0370-\u03ff]",
    r".\z": r".\Z",
    r"\Q[0]\E": r"\[0\]",
    r"\Qa": "a",
    "^*": "(?:^)*",
    r"\b+": r"(?:\b)+",
    # Of these names only. Python goes back through the first for years, and ends the others with a repeat that finds nothing.
    r"(\w+\.?)+#": r"(\w\.?)#",
    "(a*)*": "(a*)",
    "(a*)+": "(a*)",
    "(a|b*)*": "(a|b*)",
}
"""How Python writes what it writes otherwise than RE2."""

_ENGINES_DIFFER = {
    r"((?:[a-z.]){0,2}\b){2,}(?:(a{2,}(?:[^\W_].\w+)?||a{1,3}^)b{1,3}){0,2}",
    r"(?:)(|.?|\s{2,}?(?:[ab]+é(.+?){2,})?b{0,2})*[a-z.]{2}|^(?:\B^).|[ab].{2,}",
    r"(([^\W_]+(?:b){2,}|){1,3}?[ab]{1,3}|)+(?:[a-z.]?é{0,2})?|",
}
"""Random patterns whose groups go through a repeat of what may be empty, of which protocol/README.md promises nothing."""


def pattern_cases() -> list[dict[str, Any]]:
    """Return the cases: a pattern with what is found first in each name (its groups, or the whole where it has none), or that it is refused."""
    rng = random.Random(23)
    cases = [_case(pattern, _NAMES) for pattern in _PATTERNS]
    cases += [{"pattern": pattern, "refused": True} for pattern in _REFUSED]
    random_cases = list[dict[str, Any]]()
    while len(random_cases) < 250:
        if len(pattern := random_pattern(rng)) > 80:
            continue
        case = _case(pattern, [random_name(rng) for _ in range(6)])
        if pattern not in _ENGINES_DIFFER:
            random_cases.append(case)
    return cases + random_cases


def random_name(rng: random.Random) -> str:
    """Return a short name of few letters, so that patterns find something."""
    return "".join(rng.choices("aaabbA_.1é \n", k=rng.randrange(8)))


def random_pattern(rng: random.Random, depth: int = 3) -> str:
    """Return a pattern of the syntax."""
    return "|".join(_sequence(rng, depth) for _ in range(rng.choice((1, 1, 1, 2, 3))))


def _sequence(rng: random.Random, depth: int) -> str:
    written = ""
    for _ in range(rng.randrange(4)):
        if rng.random() < 0.15:
            written += rng.choice(("^", "$", r"\b", r"\B"))
            continue
        atom = rng.choice(
            ("a", "b", r"\.", ".", r"\w", r"\d", r"\s", "[ab]", "[^a]", "[a-z.]", r"[^\W_]", "é")
        )
        if depth > 0 and rng.random() < 0.4:
            atom = rng.choice(("({})", "(?:{})")).format(random_pattern(rng, depth - 1))
        times = rng.choice(("", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"))
        written += atom + times + ("?" if times and rng.random() < 0.3 else "")
    return written


def _case(pattern: str, names: list[str]) -> dict[str, Any]:
    written = re.sub(r"\(\?<(?=\w)", "(?P<", pattern)
    # The end of a name is no line break before it; and of an empty name Python, alone, says that nothing in it is no border.
    written = re.sub(r"(?<!\\)\$", r"\\Z", written).replace(r"\B", r"(?:\B|\A\Z)")
    read = re.compile(_IN_PYTHON.get(pattern, written), re.ASCII)
    found = [read.search(name) for name in names]
    # A group that took no part found nothing: an empty text.
    groups = [one and [group or "" for group in one.groups() or (one[0],)] for one in found]
    return {"pattern": pattern, "names": names, "found": groups}
