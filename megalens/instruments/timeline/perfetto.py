"""Spans and alarms of a run as a trace that Perfetto opens: ``run.export("perfetto")``."""

from __future__ import annotations

import pyarrow as pa

from ...protocol import STREAMS
from ...runs.exports import Export, Format
from .analysis import analyse
from .chrome import write_chrome_trace


def _write(export: Export) -> None:
    spans, alarms = (
        pa.Table.from_batches(export.batches(stream), STREAMS[stream].schema)
        for stream in ("spans", "alarms")
    )
    write_chrome_trace(analyse(spans), export.folder / "trace.json.gz", alarms.to_pylist())


PERFETTO = Format(_write, ("spans", "alarms"))
