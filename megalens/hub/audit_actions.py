"""What a change is called in the ``audit`` stream."""

from __future__ import annotations

from typing import Any

from ..protocol.messages_generated import Config, ConfigPatch, Mode

__all__ = ["audit_actions", "difference"]


def audit_actions(patch: ConfigPatch) -> list[tuple[str, dict[str, Any]]]:
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
    looked = {name: patch[name] for name in ("flags", "instruments") if patch.get(name)}
    if looked or not actions:
        actions.insert(0, ("configure", looked))
    return actions


def difference(before: Config, after: Config) -> ConfigPatch:
    """Return the patch that makes one configuration the other: what a training script changed by itself, or what ran out."""
    old, new = before["flags"], after["flags"]
    patch: ConfigPatch = {
        "flags": {name: new.get(name) for name in sorted({*old, *new}) if old.get(name) != new.get(name)}
    }
    if before.get("perturb") != after.get("perturb"):
        patch["perturb"] = after.get("perturb")
    if before.get("budget") != after.get("budget"):
        patch["budget"] = after.get("budget")
    settings, others = before.get("instruments", {}), after.get("instruments", {})
    if others := {name: each for name, each in others.items() if each != settings.get(name)}:
        patch["instruments"] = others
    was, now = before.get("mode", {}), after.get("mode", {})
    changed: Mode = {}
    if was.get("paused", False) != now.get("paused", False):
        changed["paused"] = now.get("paused", False)
    if was.get("while_watched", False) != now.get("while_watched", False):
        changed["while_watched"] = now.get("while_watched", False)
    if changed:
        patch["mode"] = changed
    return patch
