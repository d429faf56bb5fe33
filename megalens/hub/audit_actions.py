"""What a change is called in the ``audit`` stream."""

from __future__ import annotations

from typing import Any

__all__ = ["audit_actions", "difference"]


def audit_actions(patch: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return what a patch does, as (action, the part of the patch that does it): one or several of configure, perturb, disarm, pause, resume, step, budget."""
    actions: list[tuple[str, dict[str, Any]]] = []
    if "perturb" in patch:
        actions.append(("disarm" if patch["perturb"] is None else "perturb", {"perturb": patch["perturb"]}))
    mode = patch.get("mode")
    if mode:
        if "steps" in mode:
            action = "step"
        elif "paused" in mode:
            action = "pause" if mode["paused"] else "resume"
        else:
            action = "pause" if mode.get("while_watched") else "resume"
        actions.append((action, {"mode": mode}))
    if "budget" in patch:
        actions.append(("budget", {"budget": patch["budget"]}))
    if patch["flags"] or not actions:
        actions.insert(0, ("configure", {"flags": patch["flags"]}))
    return actions


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the patch that makes one configuration the other: what a training script changed by itself, or what ran out."""
    old, new = before["flags"], after["flags"]
    patch: dict[str, Any] = {
        "flags": {name: new.get(name) for name in sorted({*old, *new}) if old.get(name) != new.get(name)}
    }
    for member in ("perturb", "budget"):
        if before.get(member) != after.get(member):
            patch[member] = after.get(member)
    modes = before.get("mode") or {}, after.get("mode") or {}
    changed = {
        name: modes[1].get(name, False)
        for name in ("paused", "while_watched")
        if modes[0].get(name, False) != modes[1].get(name, False)
    }
    if changed:
        patch["mode"] = changed
    return patch
