"""``megalens.TrainerMon``: the class of msProbe's training monitor, its configuration, methods and files."""

from __future__ import annotations

import atexit
import csv
import json
import os
import queue
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any

from pandas import DataFrame
from torch import Tensor, distributed, nn

from ....adapters.before_reduction import before_reduction
from ....protocol import MegalensError, is_whole
from ....protocol.outside import parse_json, replace_file
from ....tracer.errors import describe_error
from .anomalies import AnomalyWriter
from .call_rows import CallCollector, CallRows, CollectiveCalls
from .config import (
    ConfigFileError,
    MonitorConfig,
    checked_ops,
    read_config,
    read_time,
    squashed,
    wants_module,
    wants_parameter,
)
from .readings import FeatureRows, ModuleStacks, ModuleStructure, OptimizerReadings
from .writing import (
    COMMUNICATION,
    ApiWriter,
    CollectedStep,
    TensorBoardWriter,
    Writer,
    WriterThread,
    need_tensorboard,
    rank_folder,
    stacked_rows,
    tag_of,
    writer_of,
    written_lines,
)

_FOLDER = re.compile(r"([\w-]{0,20})-rank(\d{1,5})-")


class CommunicationShown(MegalensError):
    """``cc_log_only`` ends the training once the communication operations and their callers were shown."""


class StructureWritten(MegalensError):
    """``print_struct`` ends the training once ``module_struct.json`` is there."""


class TrainerMon:
    """Measures a training step by step and call by call, and writes files as TrainerMon does.

    Parameters
    ----------
    config_file_path : str or path
        JSON file of the configuration; a mapping of its fields is taken too.
    process_group : optional
        Ranks of this process's pipeline.
    params_have_main_grad : bool
        Whether gradients are taken from ``main_grad`` of parameters that have one.
    opt_ty : optional
        Ignored.

    Raises
    ------
    ConfigError
        When the configuration cannot be used; the message names the field.

    Notes
    -----
    Files are written below ``$MONITOR_OUTPUT_DIR``, ``./monitor_output`` when it is not set. With
    ``DYNAMIC_MONITOR=true`` nothing is measured until the file has ``"dynamic_on": true``, which is checked
    after each step of the optimizer. Nothing that is called during training raises or waits for the device.
    """

    def __init__(
        self,
        config_file_path: str | Path | Mapping[str, Any],
        process_group: Any = None,
        params_have_main_grad: bool = True,
        opt_ty: Any = None,
    ) -> None:
        self._given, self._main_grad = config_file_path, params_have_main_grad
        self.rank = distributed.get_rank() if distributed.is_initialized() else 0
        self._group = process_group
        self._root = Path(os.environ.get("MONITOR_OUTPUT_DIR", "./monitor_output"))
        self._dynamic = os.environ.get("DYNAMIC_MONITOR", "false").lower() == "true"
        # Read once: names are those of all of the run.
        config = read_config(config_file_path, _warn)
        self._squash = config.squash_name
        self._config = config
        self._ops = list(config.ops)
        self._seen = 0.0
        self._on = False
        self._begun = self._collected = self.step = 0
        self._chunks: list[nn.Module] = []
        self._optimizer = OptimizerReadings(None)
        self._collector: CallCollector | None = None
        self._writer: Writer | None = None
        self._inner: Writer | None = None
        self._folder: Path | None = None
        self._collectives: CollectiveCalls | None = None
        self._has_stepped = False
        self._stacks: ModuleStacks | None = None
        self._structure: ModuleStructure | None = None
        self._updates: dict[str, Tensor] = {}
        self._latest: dict[str, CallRows | FeatureRows] = {}
        # Of the current step; None where it is not due, or something failed.
        self._taken: dict[str, CallRows | FeatureRows] | None = None
        self._reported: set[str] = set()
        self._thread = WriterThread(self._warn_once)
        if not self._dynamic:
            self._begin(config, config.start_step)

    @property
    def ops(self) -> list[str]:
        """Operations that are written; those that are set are checked as in the configuration."""
        return list(self._ops)

    @ops.setter
    def ops(self, given: list[str]) -> None:
        self._ops = checked_ops(given, _warn)

    def set_monitor(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: Any,
        grad_acc_steps: int = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """Measure a training. Use keywords.

        Parameters
        ----------
        model : torch.nn.Module or sequence of them
            The model, or its chunks of a virtual pipeline.
        optimizer
            Whose ``step`` ends a step.
        grad_acc_steps : int
            Micro-batches of a step.
        tp_group, dp_group : optional
            Ranks that hold the same: of reduced gradients one of them writes.
        start_iteration : int
            Number of the first step.
        """
        self._chunks = [model] if isinstance(model, nn.Module) else list(model)
        self._optimizer = OptimizerReadings(optimizer, self._main_grad)
        self._micro_batches = grad_acc_steps if is_whole(grad_acc_steps, 1) else _default("grad_acc_steps", 1)
        self.step = start_iteration if is_whole(start_iteration, 0) else _default("start_iteration", 0)
        self._data_rank, self._tensor_rank = _rank_in(dp_group), _rank_in(tp_group)
        original = optimizer.step

        # With what schedulers note on it.
        @wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            if self._shows_collectives:
                if self._has_stepped:
                    self._guarded(self._show_collectives)
                    raise CommunicationShown("exit after first step when print cc stack")
                self._has_stepped = True
            elif self._structure is not None:
                self._guarded(self._write_structure)
                raise StructureWritten("exit after first monitor step when print model struct")
            self._guarded(self._before)
            result = original(*args, **kwargs)
            self._guarded(self._after)
            return result

        # On the instance, as there: whatever wraps or schedules it calls this one.
        optimizer.step = step
        if self._on:
            self._install()

    def generate_wgrad_metrics(
        self, post_grad_dict: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
        """Return the last step's numbers of reduced and unreduced gradients by tag. Waits for the device."""
        reduced = self._metrics("grad_reduced")
        if post_grad_dict is not None:
            post_grad_dict.update(reduced)
        return reduced, self._metrics("grad_unreduced")

    def generate_xy_metrics(self) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
        """Return the last step's numbers of activations and their gradients by tag. Waits for the device."""
        return self._metrics("actv"), self._metrics("actv_grad")

    def table(self, kind: str) -> DataFrame:
        """Return what ``format`` ``api`` collected of a kind, such as ``grad_reduced``; empty without any."""
        return self._inner.table(kind) if isinstance(self._inner, ApiWriter) else DataFrame()

    def reload_xy(self, xy_distribution: bool = False) -> None:
        """Measure activations, or none any more."""
        self._config = replace(self._config, xy_distribution=xy_distribution)
        self._install()

    def close(self) -> None:
        """Remove every hook and wait until all is written. Safe twice; called at the end of the process."""
        self._end()
        self._thread.close()
        if self._writer is not None:
            self._writer.close()

    # Begin and end.

    def _begin(self, config: MonitorConfig, first: int) -> None:
        self._config, self._ops = config, list(config.ops)
        self._begun, self._collected = first, 0
        if config.module_ranks and self.rank not in config.module_ranks:
            return
        if self._folder is None:
            self._folder = self._own_folder(config)
        if self._folder is None:
            return
        if not (isinstance(self._inner, TensorBoardWriter) and config.format == "tensorboard"):
            self._inner = writer_of(config, self._folder, self.rank, warn=self._warn_once)
        self._writer = self._inner
        if config.alert["rules"]:
            stage, mates = _index_in(self._group, self.rank)
            self._writer = AnomalyWriter(
                self._inner,
                config,
                self._root / "anomaly_detected",
                rank=self.rank,
                pp_stage=stage,
                mates=mates,
                tell=print,
            )
        self._on = True
        if self._thread.start():
            atexit.register(self.close)
        self._install()

    def _own_folder(self, config: MonitorConfig) -> Path | None:
        """Return the folder of this rank; None where files are to be appended to and it has none."""
        if config.appends is None:
            return rank_folder(self._root, self.rank, datetime.now())
        first, last = config.appends
        for entry in sorted(self._root.glob(f"*-rank{self.rank}-*")):
            found = _FOLDER.match(entry.name)
            with suppress(ConfigFileError):
                if found is not None and first <= read_time(found[1], entry.name) <= last:
                    return entry
        self._warn_once(f"append_output: rank {self.rank} has no folder of these times, and writes nothing.")
        return None

    def _install(self) -> None:
        self._uninstall()
        config = self._config
        if not self._chunks or not self._on:
            return
        collector = CallCollector(
            self._chunks,
            self._micro_batches,
            config.eps,
            self._name,
            lambda error: self._warn_once(describe_error(error)),
        )
        if config.xy_distribution:
            both = config.forward_only and config.backward_only
            collector.watch_modules(
                self._wanted_module,
                forward=not config.backward_only and not both,
                backward=not config.forward_only and not both,
            )
        if config.wg_distribution:
            moment = before_reduction(self._chunks)
            collector.watch_gradients(
                self._wanted_parameter,
                each=config.monitor_mbs_grad,
                # Those of the parameters' own hooks, which it has itself.
                reduction=None if moment is None or moment.each_pass else moment.begin,
            )
        if config.recording_l2_features:
            collector.watch_features(config.l2_targets, config.sa_order)
        cc = config.cc_distribution
        if cc.get("enable"):
            self._collectives = CollectiveCalls(
                cc.get("cc_codeline", ()),
                before=cc.get("cc_pre_hook", False),
                only_stacks=cc.get("cc_log_only", False),
                failed=lambda error: self._warn_once(describe_error(error)),
            )
        if config.print_struct and self._structure is None:
            self._structure = ModuleStructure(self._chunks, self._name)
        if config.stack_info and self._stacks is None:
            self._stacks = ModuleStacks(self._chunks, self._name)
        self._collector = collector

    def _end(self) -> None:
        self._on = False
        self._uninstall()

    def _uninstall(self) -> None:
        if self._collector is not None:
            self._collector.close()
            self._collector = None
        if self._collectives is not None:
            self._collectives.close()
            self._collectives = None

    @property
    def _shows_collectives(self) -> bool:
        cc = self._config.cc_distribution
        return self._collectives is not None and cc.get("cc_log_only", False)

    def _show_collectives(self) -> None:
        if self._collectives is not None and self.rank == min(self._config.module_ranks, default=0):
            print("> Used communication ops and corresponding stack")
            print(json.dumps(self._collectives.stacks))

    # A step, in the training thread.

    @property
    def _due(self) -> bool:
        config, since = self._config, self.step - self._begun
        return self._on and self._collector is not None and since >= 0 and since % config.step_interval == 0

    def _before(self) -> None:
        collector, config = self._collector, self._config
        self._taken = None
        if collector is None:
            return
        found = collector.take()
        if self._collectives is not None:
            found[COMMUNICATION] = self._collectives.take()
        if not self._due:
            return
        if config.wg_distribution:
            found["grad_reduced"] = collector.of_parameters(
                self._wanted_parameter,
                lambda p: None if self._is_written_elsewhere(p) else self._optimizer.gradient(p),
            )
        if config.mv_distribution:
            for state in ("exp_avg", "exp_avg_sq"):
                found[state] = collector.of_parameters(
                    self._wanted_parameter, partial(self._optimizer.state, name=state)
                )
            if not found["exp_avg"].labels:
                self._warn_once("The optimizer keeps no exp_avg yet: there is none of its first step.")
        self._updates = {}
        if config.ur_distribution and config.format == "tensorboard":
            where = f"/rank{self.rank}" if distributed.is_initialized() else ""
            self._updates = {
                f"{chunk}:{name}{where}": both
                for chunk, name, parameter in collector.parameters(self._wanted_parameter)
                if (both := self._optimizer.histograms(parameter)) is not None
            }
        if config.mg_direction:
            found["other"] = collector.of_parameters(self._wanted_parameter, self._optimizer.direction)
        if config.param_distribution:
            found["param_origin"] = collector.of_parameters(
                self._wanted_parameter, lambda p: p, numbered=False
            )
        self._latest = self._taken = found

    def _after(self) -> None:
        collector, config = self._collector, self._config
        found = self._taken
        if collector is not None and found is not None and self._writer is not None:
            if config.param_distribution:
                found["param_updated"] = collector.of_parameters(
                    self._wanted_parameter, lambda p: p, numbered=False
                )
            kinds = {kind: stacked_rows(rows) for kind, rows in found.items() if rows.labels}
            try:
                self._thread.put(
                    CollectedStep(self.step, kinds, list(self._ops), self._writer, self._inner, self._updates)
                )
            except queue.Full:
                self._warn_once(f"Step {self.step} and maybe others are not written: the disk is too slow.")
            self._write_stacks()
            self._collected += 1
        if collector is not None:
            collector.begin()
        self.step += 1
        if self._on and self._collected >= max(config.collect_times, 1):
            self._end()
            self._forget_dynamic_on()
        if self._dynamic:
            self._look()

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._warn_once(f"TrainerMon failed in step {self.step}: {describe_error(error)}")

    def _is_written_elsewhere(self, parameter: nn.Parameter) -> bool:
        if self._data_rank and not self._optimizer.is_sharded(parameter):
            return True
        return self._tensor_rank > 0 and not getattr(parameter, "tensor_model_parallel", False)

    # What is measured.

    def _name(self, name: str) -> str:
        return squashed(name) if self._squash else name

    def _wanted_module(self, chunk: int, name: str) -> bool:
        return wants_module(self._config, chunk, name)

    def _wanted_parameter(self, chunk: int, name: str) -> bool:
        return wants_parameter(self._config, chunk, name)

    # Numbers.

    def _metrics(self, kind: str) -> dict[str, dict[str, float]]:
        lines = written_lines(stacked_rows(self._latest.get(kind, CallRows())), self._ops)
        return {tag_of(line, kind, self.rank): dict(line.values) for line in lines}

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._reported:
            self._reported.add(sentence)
            warnings.warn(f"TrainerMon: {sentence}", stacklevel=3)

    def _write_stacks(self) -> None:
        if self._stacks is None or self._folder is None:
            return
        path, found = self._folder / "stack_info.csv", self._stacks.found
        self._stacks.close()
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("w", newline="", encoding="utf-8") as file:
                out = csv.writer(file, lineterminator="\n")
                out.writerow(["module_name", "stack_info"])
                out.writerows(found.items())

    def _write_structure(self) -> None:
        if self._structure is not None:
            folder = self._root / "module_struct" / f"rank{self.rank}"
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self._structure.found, indent=2)
            (folder / "module_struct.json").write_text(text, encoding="utf-8")
            self._structure.close()

    # Started and stopped by editing the file.

    def _look(self) -> None:
        """Reload the file, where somebody has changed it."""
        if not isinstance(self._given, (str, Path)):
            return
        changed = os.stat(self._given).st_mtime
        if changed == self._seen:
            return
        self._seen = changed
        try:
            config = read_config(self._given, self._warn_once)
            if config.format == "tensorboard":
                need_tensorboard()
        except Exception as error:
            self._warn_once(
                f"The configuration was not followed, what was in force stays. {describe_error(error)}"
            )
            return
        if config.dynamic_on:
            self._end()
            self._begin(config, self.step)

    def _forget_dynamic_on(self) -> None:
        """Reset ``dynamic_on`` in the file."""
        if not self._dynamic or not isinstance(self._given, (str, Path)):
            return
        path = Path(self._given)
        raw = parse_json(path.read_bytes())
        if isinstance(raw, dict):
            replace_file(path, json.dumps({**raw, "dynamic_on": False}, indent=2).encode())
            self._seen = os.stat(path).st_mtime


def _rank_in(group: Any) -> int:
    return 0 if group is None else distributed.get_rank(group)


def _index_in(group: Any, rank: int) -> tuple[int, list[int]]:
    """Return this process's index in its pipeline, and the ranks of that."""
    if not distributed.is_initialized():
        return 0, [rank]
    mates = distributed.get_process_group_ranks(group or distributed.group.WORLD)
    return distributed.get_rank(group), list(mates)


def _default(name: str, value: int) -> int:
    _warn(f"{name} must be a whole number from {value}: {value} is taken.")
    return value


def _warn(sentence: str) -> None:
    warnings.warn(f"TrainerMon: {sentence}", stacklevel=3)
