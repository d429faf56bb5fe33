"""Messages between the processes of one job: settings at one step, pieces of tensors, heartbeats.

A star: every process has one connection to rank 0, and one to the process that sends for its tensor-parallel
group. Everything runs in one thread of its own; the training thread only appends to a queue. The connections
are the tracer's, not the job's: no collective of ours is ever called, so a process that comes late, leaves
early or stops answering holds nobody up.
"""

from .channel import Agreement, Channel, ChannelError, Message, Proposal
from .members import Heartbeat, HubNotice, Members, Rendezvous
from .peers import Peers
from .schedule import Schedule, StepStart

__all__ = [
    "Agreement",
    "Heartbeat",
    "HubNotice",
    "Channel",
    "ChannelError",
    "Members",
    "Message",
    "Peers",
    "Proposal",
    "Rendezvous",
    "Schedule",
    "StepStart",
]
