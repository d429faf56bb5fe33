"""Reductions in the peers' words. The peers run theirs as Python; what is sent to them is chosen from this list, never passed on."""

from __future__ import annotations

from ...protocol import ProtocolError

__all__ = ["peer_reduction", "reduction_of"]

# Peers reduce twice, on each rank and again after the gather, so only what changes nothing the second time keeps its meaning.
_PEER = {
    "mean": "data.mean(dim=-1)",
    "sum": "data.sum(dim=-1)",
    "max": "data.amax(dim=-1)",
    "min": "data.amin(dim=-1)",
    "norm": "data.norm(dim=-1)",
    "median": "data.median(dim=-1).values",
    "abs().mean()": "data.abs().mean(dim=-1)",
    "abs().max()": "data.abs().amax(dim=-1)",
}


def _spellings(name: str) -> list[str]:
    """Return every way in which the reduction language writes it, without spaces and without ``dim=-1``."""
    first, _, last = name.partition("().")
    if not last:
        return [name, f"{name}()", f"data.{name}()", f"{name}(data)"]
    last = last.removesuffix("()")
    return [
        f"{start}.{last}()" for start in (f"{first}()", f"data.{first}()", f"{first}(data)", f"{first}")
    ] + [f"{last}({inner})" for inner in (f"{first}(data)", f"data.{first}()", f"{first}()", first)]


_KNOWN = {spelling: name for name in _PEER for spelling in _spellings(name)}
_OURS = {text.replace("dim=-1", "-1"): name for name, text in _PEER.items()}


def _plain(text: str) -> str:
    text = "".join(text.split())
    for argument in ("dim=-1", "-1"):
        text = text.replace(f"({argument})", "()").replace(f",{argument})", ")")
    return text


def peer_reduction(text: str, field: str) -> str:
    """Return the peers' expression for a reduction.

    Raises
    ------
    ProtocolError
        ``refused`` when theirs and ours do not mean the same, with the dotted field.
    """
    name = _KNOWN.get(_plain(text))
    if name is None:
        raise ProtocolError(
            "refused",
            f"The reduction {text!r:.100} cannot be asked of this peer: it reduces twice, on each rank and after the gather, "
            f"and only some reductions keep their meaning then. Choose one of {', '.join(_PEER)}.",
            field=field,
            expected=", ".join(_PEER),
            got=text[:200],
        )
    return _PEER[name]


def reduction_of(text: str, field: str) -> str:
    """Return the reduction that a client of a peer's dialect asks for in the peer's words; ours are understood too.

    Raises
    ------
    ProtocolError
        ``bad-reduction`` for anything else: nothing that a socket sends is run.
    """
    plain = "".join(text.split()).replace("dim=-1", "-1")
    name = _OURS.get(plain) or _KNOWN.get(_plain(text))
    if name is None:
        raise ProtocolError(
            "bad-reduction",
            f"The method {text!r:.100} is not one that is understood here. Send one of {', '.join(_PEER.values())}.",
            field=field,
            got=text[:200],
        )
    return name
