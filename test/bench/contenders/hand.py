"""What one writes by hand: a table, a partial index, UPDATE of one row found with SKIP LOCKED."""

from contenders import PAYLOAD
from contenders.sql import Sql

TABLE = """
DROP TABLE IF EXISTS hand;
CREATE TABLE hand (id bigserial PRIMARY KEY, state int2 NOT NULL DEFAULT 0,
  attempt int NOT NULL DEFAULT 0, lease_until timestamptz, payload jsonb NOT NULL)
  WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
CREATE INDEX hand_ready ON hand (id) WHERE state = 0"""

TAKE = ("UPDATE hand SET state = 1, attempt = attempt + 1, lease_until = now() + '5 min' "
        "FROM (SELECT id AS found FROM hand WHERE state = 0 ORDER BY id LIMIT %d "
        "FOR UPDATE SKIP LOCKED) AS f WHERE id = found RETURNING id, payload")


class Hand(Sql):
    """The best that one finds in tutorials."""

    name = "hand-written SQL"
    table = "hand"

    def fresh(self, rig, poolers):
        rig.psql(TABLE, rig.behind(self.database))

    def fill(self, rig, poolers, n):
        rig.psql("INSERT INTO hand (payload) SELECT '%s' FROM generate_series(1, %d)" % (PAYLOAD, n),
                 rig.behind(self.database))

    def push(self, batch):
        return "INSERT INTO hand (payload) VALUES " + ", ".join(["('%s')" % PAYLOAD] * batch)

    def take(self, batch):
        return TAKE % batch

    def done(self, batch):
        return "DELETE FROM hand WHERE id = %s" if batch == 1 else \
            "DELETE FROM hand WHERE id = ANY ('{%s}')"

    def script(self, mode):
        return "%s;\n%s \\gset\nDELETE FROM hand WHERE id = :id;\n" % (self.push(1), TAKE % 1)
