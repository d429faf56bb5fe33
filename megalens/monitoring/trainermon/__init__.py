"""The files and rules of another monitor, TrainerMon of msProbe, read and written as its own tools do."""
