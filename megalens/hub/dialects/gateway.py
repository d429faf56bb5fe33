"""Serving a run of ours to clients that speak the 3606 dialect."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import ProtocolError, compressor_from_setting, decode_frame
from ...protocol.messages_generated import CompressorSetting, FlagSetting
from ..discovery import HubEntry
from .dialect import DIALECTS
from .generation_writer import update_text
from .hub_gateway import GatewayClient, HubGateway, error_text, refusal_text
from .peer_message import is_shape
from .peer_request import reduction_of

_DIALECT = DIALECTS["3606"]
_FLAGS = _DIALECT.flags
_NUMBERS = {name: number for number, name in _DIALECT.numbers.items()}
_SENT = ("forward", "train")
_KEY = ("step", "micro_batch", "phase", "rank", "layer", "flag")


@dataclass(frozen=True)
class Update:
    """One update to be sent; ``source_shape`` is ``[B, S, …]`` of the traced tensor."""

    flag: str
    source_shape: list[int]
    text: str


def updates(table: pa.Table) -> Iterator[Update]:
    """Yield an update for each tensor of a frame: its parts joined, forward passes of training alone.

    Flags that the dialect does not have are left out.
    """
    for rows in _tensors(table):
        first = rows[0]
        values = _joined(rows)
        text = update_text(_NUMBERS[first["flag"]], first["layer"], values.shape, values)
        yield Update(first["flag"], list(first["source_shape"]), text)


def _tensors(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """Group the parts of one tensor, which follow each other."""
    group: list[dict[str, Any]] = []
    columns = {
        name: table.column(name).to_pylist() for name in (*_KEY, "part", "pass", "shape", "source_shape")
    }
    lists = table.column("values").combine_chunks()
    for at in range(table.num_rows):
        row: dict[str, Any] = {name: column[at] for name, column in columns.items()}
        if row["flag"] not in _NUMBERS or (row["pass"], row["phase"]) != _SENT:
            continue
        row["values"] = lists[at].values.to_numpy(zero_copy_only=False)
        shape = row["shape"]
        if not shape or not is_shape(shape) or math.prod(shape) != row["values"].size:
            # A producer that contradicts itself ends nothing here.
            continue
        known = {other["part"]: other["shape"][:-1] for other in group}
        apart = row["part"] in known or any(shape != row["shape"][:-1] for shape in known.values())
        if group and (apart or any(row[name] != group[0][name] for name in _KEY)):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _joined(rows: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    parts = [row["values"].reshape(row["shape"]) for row in rows]
    if rows[0]["flag"] == "InputTokens":
        # The dialect has ids and positions in one tensor.
        by_part = {row["part"]: part for row, part in zip(rows, parts, strict=True)}
        ids = by_part.get("ids", parts[0])
        positions = by_part.get("positions")
        if positions is None or positions.shape != ids.shape:
            positions = np.broadcast_to(np.arange(ids.shape[-1], dtype=ids.dtype), ids.shape)
        return np.stack([ids, positions])
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def read_request(message: Mapping[str, Any]) -> dict[str, FlagSetting]:
    """Return the ``FlagSetting`` of each flag that a ``run_training_step`` switches on.

    Flags are booleans or strings. A flag without an entry in ``compressor_config`` is asked for empty, as in
    the tracer itself. Raises ``ProtocolError`` with the dotted field; nothing of the message is run.
    """
    flags = message.get("visualization_flags", {})
    compressors = message.get("compressor_config", {})
    if not isinstance(flags, dict) or not isinstance(compressors, dict):
        raise ProtocolError(
            "bad-message", "visualization_flags and compressor_config must be objects.", field="type"
        )
    chosen: dict[str, FlagSetting] = {}
    for name, value in flags.items():
        if str(value).lower() != "true" or name not in _FLAGS:
            continue
        chosen[name] = {"samples": None, "compressor": _compressor(name, compressors.get(name))}
    return chosen


def _compressor(name: str, given: Any) -> CompressorSetting:
    field = f"compressor_config.{name}"[:300]
    if name == "InputTokens":
        return {"name": "NoOp", "params": {}}
    if given is None:
        return {"name": "Empty", "params": {}}
    kind = given.get("compressor_type") if isinstance(given, dict) else None
    params = given.get("compressor_configs", {}) if isinstance(given, dict) else None
    if not isinstance(kind, str) or not isinstance(params, dict):
        raise ProtocolError(
            "bad-parameter",
            "Expected {compressor_type, compressor_configs}.",
            field=field,
            got=repr(given)[:200],
        )
    if kind == "TileCompressor":
        method = params.get("method", "data.mean(dim=-1)")
        return {
            "name": "Tile",
            "params": {
                "tiles": params.get("tiles", 96),
                "reduction": reduction_of(method if isinstance(method, str) else "", f"{field}.method"),
            },
        }
    if kind in ("NoOpCompressor", "EmptyCompressor"):
        return {"name": kind.removesuffix("Compressor"), "params": {}}
    if kind == "ProjectionCompressor" and isinstance(params.get("vector_path"), str):
        return {"name": "Projection", "params": {"vectors": params["vector_path"]}}
    raise ProtocolError(
        "unknown-compressor", f"{kind!r:.100} is not known here.", field=f"{field}.compressor_type"
    )


class Gateway(HubGateway):
    """Serves one hub's run in the 3606 dialect, on this machine only.

    Whoever runs it allows this machine's clients to see the run and to switch flags on. Several share a port
    by what they say first.
    """

    peer = "3606 client"

    def __init__(self, entry: HubEntry, port: int, *, queue_bytes: int = 32 << 20) -> None:
        super().__init__(entry, port, queue_bytes=queue_bytes)
        self._shape: list[int] | None = None
        self._asked: dict[str, GatewayClient] = {}
        self._count = 0

    # -- the hub's side --------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while (item := await self._hub.read()) is not None:
            if isinstance(item, bytes):
                frame = decode_frame(item)
                if frame.stream == "tensors":
                    await self._pass_on(frame.table(), bool(frame.bits & 1))
            elif item["type"] == "error":
                client = self._asked.pop(item.get("reply_to", ""), None)
                if client is not None:
                    client.put(error_text(item["message"]))

    async def _pass_on(self, table: Any, caught_up: bool) -> None:
        for update in updates(table):
            if update.flag != "InputTokens" or self._shape is None:
                self._shape = update.source_shape
            if caught_up:
                continue
            for client in list(self._clients):
                if client.flags is not None and update.flag in client.flags:
                    client.start(self._start)
                    client.put(update.text)
        # Between frames with many tensors, the clients are sent something.
        await asyncio.sleep(0)

    def _start(self) -> str | None:
        """Return the ``start`` message, once a tensor has shown the sizes."""
        model = self._hub.hello["model"]
        if self._shape is None or model is None:
            return None
        batch, positions = [*self._shape, 1, 1][:2]
        return json.dumps(
            {
                "type": "start",
                "micro_batch_size": batch,
                "seq_length": positions,
                "num_layers": model["layers"],
            }
        )

    # -- the clients' side -----------------------------------------------------------------------------------

    def _forget(self, client: GatewayClient) -> None:
        self._asked = {key: other for key, other in self._asked.items() if other is not client}

    async def _take(self, client: GatewayClient, message: dict[str, Any]) -> None:
        if message["type"] != "run_training_step":
            return
        try:
            asked = read_request(message)
            await self._configure(client, asked)
        except ProtocolError as error:
            client.put(refusal_text(error))
            return
        # Token ids are always on in the dialect.
        client.flags = {*asked, "InputTokens"}
        client.start(self._start)

    async def _configure(self, client: GatewayClient, asked: dict[str, FlagSetting]) -> None:
        """Switch on what is off or differs; what others have on and this client did not name stays."""
        now = self._hub.hello["config"]["flags"]
        patch: dict[str, FlagSetting | None] = {}
        for name, setting in asked.items():
            compressor = compressor_from_setting(setting["compressor"], f"compressor_config.{name}")
            if self._traced(client, name) is None:
                continue
            if name in now and compressor_from_setting(now[name]["compressor"]) == compressor:
                continue
            # Samples stay as they are where the flag is on.
            patch[name] = {**now[name], **setting} if name in now else setting
        if patch:
            self._count += 1
            change = f"3606-{self._count}"
            self._asked[change] = client
            await self._hub.say({"type": "configure", "id": change, "patch": {"flags": patch}})
