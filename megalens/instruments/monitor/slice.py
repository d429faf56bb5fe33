"""What the monitor adds to Megalens."""

from ...slices import Slice

_HERE = "megalens.instruments.monitor"

SLICE = Slice(
    name="monitor",
    run={name: f"{_HERE}.recorded:{name}" for name in ("alarms", "first_anomaly")},
    endpoints=f"{_HERE}.endpoints:ENDPOINTS",
    commands=f"{_HERE}.cli:add_commands",
)
