"""How two processes of a job let each other in: both show that they know the secret, which itself never crosses the wire."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
from typing import Any

from ...place import Place
from .channel import ChannelError, Message, MessageKind

__all__ = ["Handshake"]


class Handshake:
    """One process's side of it, whether it asks to be let in or lets in.

    Parameters
    ----------
    secret : str
        What the processes of this job know and nobody else.
    place : Place
        Where this process stands.
    """

    def __init__(self, secret: str, place: Place) -> None:
        self._secret = secret.encode()
        self._place = place

    @staticmethod
    def challenge() -> str:
        """Return something that nobody can have seen an answer to."""
        return secrets.token_hex(32)

    def answer(self, theirs: str, mine: str) -> dict[str, Any]:
        """Return what is said to a challenge: who this is, proof of the secret, and a challenge in return."""
        place, host = self._place, socket.gethostname()
        return {
            "rank": place.rank,
            "name": f"{place.name} on {host}"[:200],
            "place": place.to_message(host),
            "challenge": mine,
            "proof": self._proof("member", theirs, place.rank),
        }

    def check_answer(self, message: Message, challenge: str) -> int:
        """Return the rank of whoever answered ``challenge``.

        Raises
        ------
        ChannelError
            When it does not know the secret.
        """
        rank = int(message.meta["rank"])
        proof = self._proof("member", challenge, rank)
        if message.kind is not MessageKind.ANSWER or not hmac.compare_digest(
            proof, str(message.meta["proof"])
        ):
            raise ChannelError("somebody who does not know this job's secret asked to be let in")
        return rank

    def welcome(self, rank: int, theirs: str) -> dict[str, Any]:
        """Return what is said to a process that has proved itself."""
        return {"proof": self._proof("leader", theirs, rank)}

    def check_welcome(self, message: Message, mine: str) -> None:
        """Look at the proof of whoever let this process in.

        Raises
        ------
        ChannelError
            When it does not know the secret.
        """
        proof = self._proof("leader", mine, self._place.rank)
        if message.kind is not MessageKind.WELCOME or not hmac.compare_digest(
            proof, str(message.meta["proof"])
        ):
            raise ChannelError("whoever is at this job's address does not know its secret")

    def _proof(self, side: str, challenge: str, rank: int) -> str:
        text = f"megalens {side} {challenge} {rank}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()
