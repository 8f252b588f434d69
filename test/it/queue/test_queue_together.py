"""Lone statements of several queues that share a transaction: what one of them does or suffers is no business of the
others."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import tag, take

N = 12


class Many:
    """A proxy whose engine has one connection, and a client for each of some queues."""

    def __init__(self, qbouncer, db, direct, options=lambda i: ""):
        self.direct, self.db = direct, db
        self.proxy = qbouncer(queue_engine_after=1, queue_pool_size=2)
        self.clients = [self.proxy.wire(db) for _ in range(N)]
        for i, c in enumerate(self.clients):
            tag(c, "QUEUE CREATE q%d%s" % (i, options(i)))
        wait_for(lambda: tag(self.clients[0], "QUEUE PUSH q0 '0'") and self.engines(), "a connection of the engine's own")
        self.shared = 0

    def engines(self):
        return [int(r["remote_pid"]) for r in self.proxy.console("SHOW SERVERS")
                if r["database"] == self.db and r["engine"] == "1"]

    def burst(self, sql, late=()):
        """What each is answered, an error or a tag; those in `late` are not waited for."""
        for i, c in enumerate(self.clients):
            c.query(sql(i))
        return [None if i in late else self.answer(c) for i, c in enumerate(self.clients)]

    @staticmethod
    def answer(c):
        end = [m for m in c.until("Z") if m.type in "CE"][-1]
        return end.tag if end.type == "C" else end

    def writers(self):
        """The transactions that have written what is there, of each queue."""
        return [{r[0] for r in self.direct.execute("SELECT xmin::text FROM queue.q_q%d" % i).fetchall()} for i in range(N)]

    def count(self, i):
        return self.direct.execute("SELECT count(*) FROM queue.q_q%d" % i).fetchone()[0]

    def sharing(self):
        seen, sets = set(), self.writers()
        for s in sets:
            if s & seen:
                return True
            seen |= s
        return False

    def close(self):
        for c in self.clients:
            c.close()


@pytest.fixture
def many(qbouncer, db, direct):
    made = []

    def make(*args):
        made.append(Many(qbouncer, db, direct, *args))
        return made[-1]
    yield make
    for m in made:
        m.close()


def push(i):
    return "QUEUE PUSH q%d '{\"n\": 1}'" % i


def push_until_shared(m, sql=push, check=lambda got: None):
    """Rounds of pushes, until some had one transaction. Returns how many there were."""
    rounds = []

    def once():
        got = m.burst(sql)
        check(got)
        rounds.append(got)
        return m.sharing()
    wait_for(once, "pushes to several queues in one transaction")
    return len(rounds)


def all_done(got):
    assert got == ["INSERT 0 1"] * N, got


def test_each_is_what_it_is_alone(many):
    m = many()
    n = push_until_shared(m, check=all_done)
    assert [m.count(i) for i in range(1, N)] == [n] * (N - 1)
    tokens = []
    for _ in range(n):
        for i, c in enumerate(m.clients):
            c.query("QUEUE TAKE q%d" % i)
        for i, c in enumerate(m.clients):
            rows = [msg.text_row for msg in c.until("Z") if msg.type == "D"]
            assert len(rows) == 1 and rows[0][2] == "q%d" % i
            tokens.append(rows[0][1])
    assert len(set(tokens)) == n * N
    for k in range(0, len(tokens), N):
        got = m.burst(lambda i, k=k: "QUEUE DONE '%s'" % tokens[k + i])
        assert got == ["UPDATE 1"] * N
    assert [m.count(i) for i in range(1, N)] == [0] * (N - 1)


@pytest.mark.parametrize("when", ("at once", "at the commit"))
def test_one_fails(many, when):
    m = many()
    if when == "at once":
        m.direct.execute("ALTER TABLE queue.q_q3 ADD CHECK (payload <> '\"bad\"')")
    else:
        m.direct.execute("""CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN IF NEW.payload = '"bad"' THEN RAISE check_violation; END IF; RETURN NULL; END$$""")
        m.direct.execute("CREATE CONSTRAINT TRIGGER no AFTER INSERT ON queue.q_q3 DEFERRABLE INITIALLY DEFERRED"
                         " FOR EACH ROW EXECUTE FUNCTION no()")

    def check(got):
        assert got[3].sqlstate == "23514"
        assert got[:3] + got[4:] == ["INSERT 0 1"] * (N - 1)
    push_until_shared(m, check=all_done)
    before = [m.count(i) for i in range(N)]
    for _ in range(10):
        check(m.burst(lambda i: push(i) if i != 3 else "QUEUE PUSH q3 '\"bad\"'"))
    assert [m.count(i) - before[i] for i in range(N)] == [10] * 3 + [0] + [10] * (N - 4)


def test_one_waits_for_a_lock(many, cluster):
    m = many()
    push_until_shared(m, check=all_done)
    with psycopg.connect(cluster.dsn(m.db), autocommit=True) as other:
        other.execute("BEGIN; LOCK TABLE queue.q_q5 IN EXCLUSIVE MODE")
        got = m.burst(push, late=(5,))
        assert got[:5] + got[6:] == ["INSERT 0 1"] * (N - 1)
        other.execute("COMMIT")
    assert m.answer(m.clients[5]) == "INSERT 0 1"


def test_the_connection_is_lost(many):
    m = many()
    push_until_shared(m, check=all_done)
    before = sum(m.count(i) for i in range(N))
    done = unknown = 0
    for _ in range(10):
        for i, c in enumerate(m.clients):
            c.query(push(i))
        for pid in m.engines():
            m.direct.execute("SELECT pg_terminate_backend(%s)", (pid,))
        for c in m.clients:
            got = m.answer(c)
            done += got == "INSERT 0 1"
            if got != "INSERT 0 1":
                assert got.sqlstate[:2] in ("08", "57"), got
                unknown += 1
    after = sum(m.count(i) for i in range(N)) - before
    assert done <= after <= done + unknown
    wait_for(lambda: tag(m.clients[0], "QUEUE PUSH q0 '0'") and m.engines(), "another connection")
    all_done(m.burst(push))


def test_what_need_not_survive_a_crash_is_apart(many):
    """A commit that does not wait for the disk would be that of the others, too."""
    m = many(lambda i: " WITH (durability = async)" if i % 2 else "")
    push_until_shared(m, check=all_done)
    for _ in range(10):
        all_done(m.burst(push))
    sets = m.writers()
    assert not set().union(*sets[::2]) & set().union(*sets[1::2])


def test_pushes_and_dones(many, direct):
    """Both wait for the disk, so that they do it together."""
    m = many()
    push_until_shared(m, check=all_done)
    direct.execute("CREATE TABLE ends (xid text)")
    direct.execute("CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
                   " 'BEGIN INSERT INTO public.ends VALUES (pg_current_xact_id()::xid::text); RETURN NULL; END'")
    for i in range(0, N, 2):
        direct.execute("CREATE TRIGGER zz_end AFTER DELETE ON queue.q_q%d FOR EACH ROW EXECUTE FUNCTION note_end()" % i)

    def once():
        all_done(m.burst(push))
        tokens = [take(c, "QUEUE TAKE q%d" % i)["token"] for i, c in enumerate(m.clients)]
        before = [m.count(i) for i in range(N)]
        got = m.burst(lambda i: push(i) if i % 2 else "QUEUE DONE '%s'" % tokens[i])
        assert got == ["UPDATE 1", "INSERT 0 1"] * (N // 2)
        assert [m.count(i) - before[i] for i in range(N)] == [-1, 1] * (N // 2)
        ends = {r[0] for r in direct.execute("SELECT xid FROM ends").fetchall()}
        return ends & set().union(*m.writers())
    wait_for(once, "a push and a done in one transaction")


def test_one_is_dropped_and_made_anew(many):
    m = many()
    push_until_shared(m, check=all_done)
    for _ in range(3):
        m.direct.execute("SELECT queue.drop('q7')")
        m.direct.execute("SELECT queue.create('q7')")
        before = [m.count(i) for i in range(N)]
        all_done(m.burst(push))
        assert [m.count(i) - before[i] for i in range(N)] == [1] * N


def test_one_has_no_right(many, direct):
    m = many()
    push_until_shared(m, check=all_done)
    owner = direct.execute("SELECT owner FROM queue.queues WHERE name = 'q4'").fetchone()[0]
    direct.execute("REVOKE INSERT ON queue.q_q4 FROM %s" % owner)
    got = m.burst(push)
    direct.execute("GRANT INSERT ON queue.q_q4 TO %s" % owner)
    assert got[4].sqlstate == "42501"
    assert got[:4] + got[5:] == ["INSERT 0 1"] * (N - 1)
    all_done(m.burst(push))


def test_a_client_leaves(many):
    m = many()
    push_until_shared(m, check=all_done)
    before = [m.count(i) for i in range(N)]
    for i, c in enumerate(m.clients):
        c.query(push(i))
    m.clients[2].close()
    m.clients[2] = m.proxy.wire(m.db)
    got = [m.answer(c) if i != 2 else None for i, c in enumerate(m.clients)]
    assert got[:2] + got[3:] == ["INSERT 0 1"] * (N - 1)
    after = [m.count(i) for i in range(N)]
    assert [a - b for i, (a, b) in enumerate(zip(after, before)) if i != 2] == [1] * (N - 1)
    assert take(m.clients[2], "QUEUE TAKE q2")["queue"] == "q2"


def test_a_trigger_of_the_user_on_one_hot_row(many, qbouncer, db, direct):
    """Each push of each queue locks the same row of the application, in transactions that two proxies share out
    differently: who cannot have it goes alone, and nothing is lost or counted twice."""
    m = many()
    other = qbouncer(queue_engine_after=1, queue_pool_size=2)
    direct.execute("CREATE TABLE hot (n int)")
    direct.execute("INSERT INTO hot VALUES (0)")
    direct.execute("CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
                   " 'BEGIN UPDATE public.hot SET n = n + 1; RETURN NULL; END'")
    for i in range(N):
        direct.execute("CREATE TRIGGER zz_hot AFTER INSERT ON queue.q_q%d FOR EACH ROW EXECUTE FUNCTION count_it()" % i)
    before = sum(m.count(i) for i in range(N))
    far = [other.wire(db) for _ in range(N)]
    try:
        pushed = 0
        for _ in range(10):
            for i in range(N):
                m.clients[i].query(push(i))
                far[i].query(push(N - 1 - i))
            got = [m.answer(c) for c in m.clients + far]
            all_done(got[:N])
            all_done(got[N:])
            pushed += 2 * N
        assert direct.execute("SELECT n FROM hot").fetchone()[0] == pushed
        assert sum(m.count(i) for i in range(N)) == before + pushed
    finally:
        for c in far:
            c.close()
