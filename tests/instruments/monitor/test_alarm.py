from __future__ import annotations

from megalens.instruments.monitor.rule import Alarm, alarm_columns
from megalens.protocol import stream_schema


def test_an_alarm_has_the_columns_of_its_stream():
    alarm = Alarm(3, "nonfinite", "critical", "1 value is NaN.", "grad", "w", "nan_count", 1.0)
    assert set(alarm_columns([alarm])) == set(stream_schema("alarms").names)
