"""Rules over rows of statistics, the alarms that they raise, and the files of another monitor. Nothing here needs torch."""
