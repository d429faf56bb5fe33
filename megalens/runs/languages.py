"""The languages that the interface's texts are translated into, and which of them somebody asks for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ..protocol import parse_json

LOCALES = Path(__file__).parents[1] / "locale"


@cache
def locales() -> tuple[str, ...]:
    """Return the names of the catalogues, such as ``zh_CN``. English needs none."""
    return tuple(sorted(each.parent.parent.name for each in LOCALES.glob("*/LC_MESSAGES/megalens.json")))


def chosen_locale(accepted: str) -> str:
    """Return the catalogue of the language that a browser asks for first; nothing where that is English.

    Parameters
    ----------
    accepted : str
        As ``Accept-Language`` has it: ``zh-CN,zh;q=0.9``; also one name alone, ``zh_CN``.
    """
    asked = []
    for at, each in enumerate(accepted[:1000].replace("_", "-").split(",")):
        tag, _, rest = each.strip().lower().partition(";")
        try:
            asked.append((-float(rest.strip().removeprefix("q=") or 1), at, tag.strip()))
        except ValueError:
            continue
    for _, _, tag in sorted(asked):
        language = tag.partition("-")[0]
        if language == "en":
            break
        for locale in locales():
            own = locale.lower().replace("_", "-")
            # Of Chinese the script is what counts, which regions other than the catalogue's do not tell.
            if (tag in (own, language) and own.startswith(f"{language}-")) or (own, tag[:7]) == (
                "zh-cn",
                "zh-hans",
            ):
                return locale
    return ""


@cache
def words_of(locale: str) -> dict[str, str]:
    """Return the translations of a catalogue by text; nothing for English, which has none."""
    if locale not in locales():
        return {}
    catalogue = parse_json((LOCALES / locale / "LC_MESSAGES" / "megalens.json").read_bytes())
    return {text: forms[0] for text, forms in catalogue.items() if text and forms[0]}
