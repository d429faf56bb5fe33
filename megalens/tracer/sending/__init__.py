"""The way from the training thread to the hub: a thread that the step never waits for, its connection, and
the other processes of the job.
"""
