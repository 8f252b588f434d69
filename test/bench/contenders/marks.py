"""Marks from outside: queues that are not in a database, told to write to disk before they answer, as far as they can be.
"""

import os
import subprocess

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

    @classmethod
    def fetch(cls):
        return installed(cls.name)

    def start(self):
        try:
            program = self.fetch()
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


NATS = """listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}" }}
"""


class Nats(Mark):
    """NATS JetStream, a stream in files that is a work queue. This version has no way to sync before it answers: it syncs
    every two minutes."""

    name = "nats-server"
    mode = "nats"
    note = "JetStream, files; answers before it syncs"

    def command(self, folder):
        config = os.path.join(folder, "nats.conf")
        self.rig.write(config, NATS.format(port=self.port, folder=folder))
        return ["-c", config]


class Rabbitmq(Mark):
    """RabbitMQ, a durable queue with publisher confirms."""

    name = "rabbitmq-server"
    mode = "rabbitmq"
    note = "durable, confirms, basic.get; an ack is not answered"
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server"

    def __init__(self, rig):
        super().__init__(rig)
        self.epmd = free_port()

    def command(self, folder):
        self.rig.write(os.path.join(folder, "plugins"), "[].\n")
        said = {"HOME": folder, "RABBITMQ_NODENAME": "bench@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": self.port, "RABBITMQ_DIST_PORT": free_port(), "ERL_EPMD_PORT": self.epmd,
                "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_MNESIA_BASE": folder, "RABBITMQ_LOGS": "-",
                "RABBITMQ_LOG_BASE": folder, "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(folder, "plugins"),
                "RABBITMQ_CONF_ENV_FILE": os.path.join(folder, "none"), "RABBITMQ_CONFIG_FILE": os.path.join(folder, "none")}
        return ["%s=%s" % pair for pair in said.items()] + [self.program]

    def start(self):
        try:
            self.fetch()
        except Failed as failed:
            raise Missing(str(failed)) from failed
        self.serve(["env", *self.command(self.folder(self.mode))], self.port, self.mode)

    def stop(self):
        """Its name server goes, too, which it has left behind."""
        super().stop()
        subprocess.run(["epmd", "-port", str(self.epmd), "-kill"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
