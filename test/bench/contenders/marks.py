"""Marks from outside: queues that are not in a database, told to write to disk before they answer.
"""

from common import Failed
from contenders import PAYLOAD
from contenders.outside import Missing, Outside
from pgcluster import free_port
from programs import installed


class Mark(Outside):
    """mode: of the client program."""

    mode = ""

    def __init__(self, rig):
        super().__init__(rig)
        self.port = free_port()

    def command(self, folder):
        """What starts it."""
        raise NotImplementedError

    def start(self):
        try:
            program = installed(self.name)
        except Failed as failed:
            raise Missing(str(failed)) from failed
        self.serve([program, *self.command(self.folder(self.mode))], self.port, self.mode)

    def _client(self, load, clients, seconds, limit):
        return self.rig.run_client(self.mode, ["127.0.0.1", self.port, load, "-"], clients, seconds,
                                   limit, PAYLOAD)

    def rate(self, load, clients, seconds, jobs):
        if load != "drain":
            return self._client(load, clients, seconds, 0)["rate"]
        self._client("push", clients, 120, jobs)
        got = self._client("drain", clients, 120, 0)
        return got["turns"] / got["seconds"]


class Beanstalkd(Mark):
    """beanstalkd with a write-ahead log that is synced each time."""

    name = "beanstalkd"
    mode = "beanstalkd"
    note = "-f0"

    def command(self, folder):
        return ["-l", "127.0.0.1", "-p", str(self.port), "-b", folder, "-f0"]


class Redis(Mark):
    """Redis with an append-only file that is synced each time."""

    name = "redis-server"
    mode = "redis"
    note = "appendfsync always; RPUSH, LMOVE, LREM"

    def command(self, folder):
        return ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
                "--appendonly", "yes", "--appendfsync", "always"]
