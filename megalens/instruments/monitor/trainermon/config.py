"""The configuration of TrainerMon: every field, its valid values, and the handling of invalid ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from ....protocol import MegalensError
from ....protocol.outside import parse_json
from .rules import rules_from

OPS = ("norm", "min", "max", "zeros", "nans", "id", "mean", "shape", "dtype")
"""Operations over a tensor, by the names of their columns."""

# The last occurrence counts, of the first of them that there is.
_RULES = tuple(
    re.compile(rf".*\.({rule}.*)") for rule in (r"layers?\.", r"embeddings?\.", "final", "output", "norm")
)


def squashed(name: str) -> str:
    """Return a name from its layer on: ``module.layers.0.mlp`` is ``layers.0.mlp``."""
    for rule in _RULES:
        if (found := rule.fullmatch(name)) is not None:
            return found[1]
    return name


def _targets(config: MonitorConfig, chunk: int) -> list[str]:
    several = [each.split(":", 1) if ":" in each else [str(chunk), each] for each in config.targets]
    return [name for at, name in several if at == str(chunk)]


def wants_module(config: MonitorConfig, chunk: int, name: str) -> bool:
    """Whether a module's activations are collected: of all, or of exact targets."""
    return config.everything or bool({name, squashed(name)} & {*_targets(config, chunk)})


def wants_parameter(config: MonitorConfig, chunk: int, name: str) -> bool:
    """Whether a parameter is collected: its name begins with a target's, or there are no targets."""
    several = _targets(config, chunk) if config.targets else [""]
    return any(name.startswith(each) or squashed(name).startswith(each) for each in several)


FORMATS = ("csv", "tensorboard", "api")
L2_HOOKS = ("linear_hook", "attention_hook", "moe_router_weight_hook", "moe_router_logit_hook")
STAMP = "%b%d_%H-%M-%S"
"""The time in a folder's name, without a year."""
_MOST_BYTES = 4 << 20
_CC = {"enable": bool, "cc_codeline": list, "cc_pre_hook": bool, "cc_log_only": bool}


class ConfigError(MegalensError):
    """A configuration cannot be used; the message names the field."""


class ConfigTypeError(ConfigError, TypeError):
    """A field has a value of another type."""


class ConfigValueError(ConfigError, ValueError):
    """A field has an invalid value."""


class ConfigFileError(ConfigError, RuntimeError):
    """The file cannot be read, or a time in it."""


class ConfigKeyError(ConfigError, KeyError):
    """A member is missing."""

    __str__ = Exception.__str__


def _field(
    default: Any, must_be: str, fits: Callable[[Any], bool], error: type[ConfigError] | None = ConfigTypeError
) -> Any:
    """Describe a field. An invalid value raises ``error``; without one a warning, and the default is used."""
    about = {"must_be": must_be, "fits": fits, "error": error}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=about)
    return field(default=default, metadata=about)


def _anything(value: Any) -> bool:
    return True


def _int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _switch() -> Any:
    return _field(False, "true or false", lambda value: isinstance(value, bool))


def _loose() -> Any:
    return _field(False, "true or false", _anything)


def _integer(default: int, least: int) -> Any:
    return _field(default, f"a whole number from {least}", lambda value: _int(value) and value >= least, None)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


@dataclass(frozen=True, kw_only=True)
class MonitorConfig:
    """A checked configuration. Its attributes are the file's fields, described in ``docs/monitor.md``."""

    targets: Mapping[str, Mapping[str, Any]] = _field(
        {},
        "an object of objects by module name",
        lambda value: (
            isinstance(value, dict)
            and all(isinstance(key, str) and isinstance(each, dict) for key, each in value.items())
        ),
    )
    dynamic_on: bool = _switch()
    start_step: int = _integer(0, 0)
    collect_times: int = _integer(100_000_000, 0)
    step_interval: int = _integer(1, 1)
    print_struct: bool = _switch()
    module_ranks: Sequence[int] = _field(
        [],
        "a list of ranks",
        lambda value: isinstance(value, list) and all(_int(each) for each in value),
    )
    ur_distribution: bool = _switch()
    xy_distribution: bool = _switch()
    all_xy: bool = _loose()
    forward_only: bool = _loose()
    backward_only: bool = _loose()
    mv_distribution: bool = _loose()
    wg_distribution: bool = _switch()
    param_distribution: bool = _switch()
    mg_direction: bool = _loose()
    mg_distribution: bool = _switch()
    monitor_mbs_grad: bool = _field(False, "true or false", lambda value: isinstance(value, bool), None)
    cc_distribution: Mapping[str, Any] = _field(
        {},
        f"an object of {', '.join(_CC)}",
        lambda value: (
            isinstance(value, dict)
            and all(name in _CC and isinstance(each, _CC[name]) for name, each in value.items())
        ),
    )
    alert: Mapping[str, Any] = _field(
        {"rules": []}, "an object of rules and dump", lambda value: isinstance(value, dict)
    )
    format: str = _field(
        "csv", f"one of {', '.join(FORMATS)}", lambda value: isinstance(value, str) and value in FORMATS, None
    )
    ops: Sequence[str] = _field([], "a list of operations", lambda value: isinstance(value, list))
    eps: float = _field(1e-8, "a number with a decimal point", lambda value: isinstance(value, float))
    ndigits: int = _field(
        6,
        "a whole number from 1 to 20",
        lambda value: value is None or (_int(value) and 0 <= value <= 20),
        ConfigValueError,
    )
    step_count_per_record: int = _field(1, "a whole number from 1 to 1000000", _int)
    append_output: Sequence[str] = _field([], "a list of two times", lambda value: isinstance(value, list))
    squash_name: bool = _switch()
    stack_info: bool = _loose()
    l2_targets: Mapping[str, list[str]] = _field(
        {},
        f"an object of lists of module names, by {', '.join(L2_HOOKS)}",
        lambda value: (
            isinstance(value, dict)
            and all(hook in L2_HOOKS and _texts(names) for hook, names in value.items())
        ),
    )
    recording_l2_features: bool = _switch()
    sa_order: str = _field(
        "s,b,h,d",
        "s,b,h,d or b,s,h,d",
        lambda value: isinstance(value, str) and value.replace(" ", "") in ("s,b,h,d", "b,s,h,d"),
    )

    @property
    def everything(self) -> bool:
        return bool(self.all_xy) or (self.xy_distribution and not self.targets)

    @property
    def appends(self) -> tuple[datetime, datetime] | None:
        """The earliest and latest start time of a folder to append to."""
        if not self.append_output:
            return None
        first, last = (read_time(text, "append_output") for text in self.append_output)
        return first, last


def read_config(
    given: Mapping[str, Any] | str | Path | None, warn: Callable[[str], None] = lambda text: None
) -> MonitorConfig:
    """Return a checked configuration from its fields or a JSON file; unknown fields are ignored.

    ``warn`` takes a sentence about a value that was replaced by the default. Raises ``ConfigFileError`` when
    the file or a time of ``append_output`` cannot be read, and ``ConfigTypeError``, ``ConfigValueError`` or
    ``ConfigKeyError``, also ``TypeError``, ``ValueError`` and ``KeyError``, for a wrong field.
    """
    raw = _read(given) if isinstance(given, (str, Path)) else given or {}
    if not isinstance(raw, Mapping):
        raise ConfigTypeError(f"A configuration must be an object of fields, got {raw!r:.100}.")
    values: dict[str, Any] = {}
    for each in fields(MonitorConfig):
        value = raw.get(each.name, MISSING)
        if value is MISSING:
            continue
        if each.metadata["fits"](value):
            values[each.name] = value
            continue
        sentence = f"{each.name} must be {each.metadata['must_be']}, got {value!r:.100}"
        if each.metadata["error"] is not None:
            raise each.metadata["error"](f"{sentence}.")
        warn(f"{sentence}: {each.default!r} is taken.")
    if values.get("ndigits", 0) is None:
        del values["ndigits"]
    values["ops"] = checked_ops(values.get("ops", []), warn)
    values["sa_order"] = values.get("sa_order", "s,b,h,d").replace(" ", "")
    config = MonitorConfig(**values)
    _check_together(config, warn)
    return config


def checked_ops(given: Any, warn: Callable[[str], None] = lambda text: None) -> list[str]:
    """Return the known operations in order, then shape and dtype; raises ``ConfigTypeError`` for no list."""
    if not isinstance(given, list):
        raise ConfigTypeError(f"ops must be a list, got {given!r:.100}.")
    known = list(dict.fromkeys(op for op in given if isinstance(op, str) and op in OPS))
    for op in given:
        if op not in known:
            warn(f"op {op!r:.50} is not supported. Optional ops: {', '.join(OPS)}.")
    measured = [op for op in known if op not in ("shape", "dtype")]
    return [*(known if measured else ["norm", *known]), *(op for op in ("shape", "dtype") if op not in known)]


def _check_together(config: MonitorConfig, warn: Callable[[str], None]) -> None:
    """Check what depends on several fields."""
    if not 1 <= config.step_count_per_record <= 1_000_000:
        raise ConfigValueError(
            "step_count_per_record must be a whole number from 1 to 1000000, got "
            f"{config.step_count_per_record}."
        )
    if len(config.append_output) not in (0, 2):
        raise ConfigValueError(f"append_output must be two times, got {len(config.append_output)}.")
    if (times := config.appends) is not None and times[0] > times[1]:
        raise ConfigValueError(
            f"append_output must begin before it ends, got {config.append_output[0]} and "
            f"{config.append_output[1]}."
        )
    if "rules" not in config.alert:
        raise ConfigKeyError("alert.rules must be a list of rules, and is missing.")
    if (dump := config.alert.get("dump")) and not isinstance(dump, bool):
        raise ConfigTypeError(f"alert.dump must be true or false, got {dump!r:.100}.")
    try:
        rules_from(config.alert["rules"], warn)
    except TypeError as error:
        raise ConfigTypeError(f"{error}.") from error
    for line in config.cc_distribution.get("cc_codeline", ()):
        try:
            re.compile(line)
        except (re.error, TypeError) as error:
            raise ConfigValueError(
                f"cc_distribution.cc_codeline must be a list of patterns, got {line!r:.100}: {error}."
            ) from error
    if config.forward_only and config.backward_only:
        warn("forward_only and backward_only exclude each other: no activations are collected.")
    if config.ur_distribution and config.format != "tensorboard":
        warn("ur_distribution needs the format tensorboard, and is left out.")


def _read(path: str | Path) -> Any:
    try:
        with open(path, "rb") as file:
            return parse_json(file.read(_MOST_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigFileError(f"Load json file {str(path)[:300]} failed: {str(error)[:200]}.") from error


def read_time(text: Any, where: str) -> datetime:
    """Return the time of a folder such as ``Nov21_12-20-04`` in 2000; raises ``ConfigFileError``."""
    try:
        # February 29 needs a year that has it.
        return datetime.strptime(f"2000 {text}", f"%Y {STAMP}")
    except (TypeError, ValueError):
        raise ConfigFileError(
            f"{where}: illegal timestamp {text!r:.50}; it must be such as Nov21_12-20-04."
        ) from None
