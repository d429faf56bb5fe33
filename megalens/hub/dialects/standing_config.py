"""The configuration in force on a peer that reads it once: what may still change is what is kept of the rows that come anyway."""

from __future__ import annotations

from ...protocol import ProtocolError, compressor_from_setting, in_ranges, read_ranges
from ...protocol.messages_generated import Config, ConfigPatch, FlagSetting
from .dialect import Dialect
from .peer_message import TensorRow

__all__ = ["StandingConfig"]


class StandingConfig:
    """Keeps of a peer's rows what viewers asked for.

    Parameters
    ----------
    dialect : Dialect
        The peer's.
    config : dict
        The ``Config`` that is wanted.
    asked : dict
        The ``Config`` that was asked of the peer, which may be more.
    """

    def __init__(self, dialect: Dialect, config: Config, asked: Config) -> None:
        self._dialect = dialect
        self._asked = asked["flags"]
        self.config: Config = {"flags": dict(config["flags"])}
        self._pending: list[tuple[str, Config]] = []
        # Since which step: processes of a peer that are behind still send rows of the step before.
        self._since: list[tuple[int, dict[str, FlagSetting]]] = [(0, self.config["flags"])]

    @property
    def asked(self) -> dict[str, FlagSetting]:
        """The settings by flag that the peer was asked for."""
        return self._asked

    def plan(self, change: str, patch: ConfigPatch) -> Config:
        """Check a viewer's patch, keep it for the next step and return the configuration after it.

        Raises
        ------
        ProtocolError
            ``refused``, with the dotted field, for what only the peer could do.
        """
        for member in ("perturb", "mode", "budget"):
            if patch.get(member) is not None:
                raise ProtocolError(
                    "refused",
                    f"{member} cannot be asked of a foreign hub: its training is not ours.",
                    field=member,
                )
        flags = dict(self._pending[-1][1]["flags"] if self._pending else self.config["flags"])
        for name, setting in patch["flags"].items():
            if setting is None:
                flags.pop(name, None)
                continue
            self._check(name, setting)
            flags[name] = {"phases": [self._dialect.phase], "samples": None, **setting}
        after: Config = {"flags": flags}
        self._pending.append((change, after))
        return after

    def apply(self, step: int) -> list[tuple[str, Config]]:
        """Bring what is planned into force from ``step`` on, and return the changes with the configuration after each."""
        done, self._pending = self._pending, []
        if done:
            self.config = done[-1][1]
            self._since = [*self._since[-3:], (step, self.config["flags"])]
        return done

    def keep(self, row: TensorRow, step: int) -> TensorRow | None:
        """Return what is kept of a row, or None when nobody asked for it."""
        flags = next((flags for since, flags in reversed(self._since) if since <= step), self._since[0][1])
        setting = flags.get(row.flag)
        if setting is None or (not self._dialect.generates and step % setting.get("every", 1)):
            return None
        if not in_ranges(row.layer, read_ranges(setting.get("layers", "all"), "layers")):
            return None
        samples = setting.get("samples")
        if samples is None or samples >= len(row.values):
            return row
        labels = row.labels[: samples * row.values[0].size] if row.labels else []
        return TensorRow(row.flag, row.part, row.layer, row.values[:samples], labels)

    def _check(self, name: str, setting: FlagSetting) -> None:
        field = f"flags.{name}"
        once = "Its configuration is read once, at the start"
        asked = self._asked.get(name)
        if asked is None:
            raise ProtocolError(
                "refused",
                f"The peer was not asked for {name} when it started. {once}; connect again with it when the peer starts again.",
                field=field,
            )
        was = compressor_from_setting(asked["compressor"])
        if compressor_from_setting(setting["compressor"], f"{field}.compressor") != was:
            raise ProtocolError(
                "refused",
                f"The peer's compressor cannot change while it runs. {once}: {was}.",
                field=f"{field}.compressor",
                expected=str(was),
            )
        if setting.get("passes", ["forward"]) != ["forward"]:
            raise ProtocolError(
                "refused", "A foreign hub sends forward passes only.", field=f"{field}.passes"
            )
        if self._dialect.phase not in setting.get("phases", ["train"]):
            raise ProtocolError(
                "refused",
                f"All that this peer sends is of the phase {self._dialect.phase}.",
                field=f"{field}.phases",
            )
