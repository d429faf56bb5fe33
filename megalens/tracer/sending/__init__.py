"""From the training thread to the hub: the producer thread, its connection, and the job's other processes."""
