"""Foreign hubs: read as they are, translated into a run of ours; and ours served in their dialect."""
