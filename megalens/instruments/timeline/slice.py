"""What the timeline adds to Megalens."""

from ...slices import Slice

_HERE = "megalens.instruments.timeline"

SLICE = Slice(
    name="timeline",
    traced=f"{_HERE}.instrument:traced",
    run={"pipeline_metrics": f"{_HERE}.pipeline_passes:pipeline_metrics"},
    answers={
        "timeline": f"{_HERE}.timeline_answer:read_timeline",
        "pipeline": f"{_HERE}.pipeline_answer:read_pipeline",
    },
    exports={"perfetto": f"{_HERE}.chrome:PERFETTO"},
    opens=(
        f"{_HERE}.flight_recorder:FLIGHT_DUMPS",
        f"{_HERE}.memory_snapshot:MEMORY_SNAPSHOTS",
        f"{_HERE}.trace_folder:TRACES",
        f"{_HERE}.titan_logs:TITAN_LOGS",
    ),
    endpoints=f"{_HERE}.endpoints:ENDPOINTS",
    commands=f"{_HERE}.cli:add_commands",
)
