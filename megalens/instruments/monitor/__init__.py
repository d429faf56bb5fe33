"""Rules over rows of statistics, their alarms, and the files of another monitor; independent of torch."""
