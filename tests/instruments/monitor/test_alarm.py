from __future__ import annotations

import pyarrow as pa

from megalens.instruments.monitor.rule import Alarm, alarm_columns
from megalens.protocol import STREAMS, stream_schema


def test_an_alarm_has_the_columns_of_its_stream():
    alarm = Alarm(3, "nonfinite", "critical", "1 value is NaN.", "grad", "w", "nan_count", 1.0)
    assert set(alarm_columns([alarm])) == set(stream_schema("alarms").names)


def test_alarms_of_an_older_recording_have_no_cause():
    stream = STREAMS["alarms"]
    alarm = Alarm(3, "nonfinite", "critical", "1 value is NaN.", "grad", "w", "nan_count", 1.0, cause=3)
    given = pa.RecordBatch.from_pydict(alarm_columns([alarm]), schema=stream.schema)
    older = given.drop_columns(["cause"])
    assert stream.lacking(older.schema.names) == []
    (row,) = stream.with_later_columns(older).to_pylist()
    assert (row["cause"], row["severity"]) == (0, "critical")
