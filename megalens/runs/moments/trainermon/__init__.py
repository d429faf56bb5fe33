"""Output folders of msProbe's TrainerMon: its CSV files, and rows of the stream ``moments`` of them."""
