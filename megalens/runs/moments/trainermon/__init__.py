"""Output folders of msProbe's TrainerMon: its CSV files as they are, and as rows of the stream ``moments``."""
