"""Statements of a queue go to the server that has its functions planned, while that costs nobody a wait."""

import pytest

from proxy import wait_for
from queuetest import q, qproxy, tag  # noqa: F401


@pytest.fixture
def seen(q, direct):
    """Two queues, and the servers that have pushed into them: seen(queue) are their process ids."""
    direct.execute("CREATE TABLE public.seen (queue text, pid int, n serial)")
    direct.execute("CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                   "INSERT INTO public.seen VALUES (TG_ARGV[0], pg_backend_pid()); RETURN NULL; END $$")
    direct.execute("GRANT ALL ON public.seen, public.seen_n_seq TO PUBLIC")
    tag(q, "QUEUE CREATE news")
    for name in ("mail", "news"):
        direct.execute("CREATE TRIGGER see AFTER INSERT ON queue.q_%s FOR EACH STATEMENT "
                       "EXECUTE FUNCTION public.see('%s')" % (name, name))
    return lambda queue: [pid for pid, in direct.execute(
        "SELECT pid FROM public.seen WHERE queue = %s ORDER BY n", (queue,))]


def hold(proxy, db, wanted=None):
    """A client in a transaction on a server, and its process id; wanted: on this one."""
    others = []
    while True:
        c = proxy.wire(db)
        tag(c, "BEGIN")
        pid = int(c.rows("SELECT pg_backend_pid() AS pid")[0]["pid"])
        if wanted in (None, pid):
            break
        others.append(c)
    for other in others:
        tag(other, "COMMIT")
    return c, pid


def test_pushes_keep_to_the_server_of_their_queue(q, qproxy, db, seen):
    """The server that was used last, which is the first to be taken otherwise, is another each time.
    (A statement of the proxy's own may happen to be there: then there are two.)"""
    tag(q, "QUEUE PUSH mail '0'")
    for i in range(12):
        held = [hold(qproxy, db)[0] for _ in range(4)]
        for c in held[i % 4:] + held[:i % 4]:
            tag(c, "COMMIT")
        tag(q, "QUEUE PUSH mail '%d'" % i)
    pids = seen("mail")
    assert len(pids) == 13
    assert len(set(pids)) <= 2, pids


def test_a_queue_whose_server_a_client_has_goes_to_another(q, qproxy, db, seen):
    tag(q, "QUEUE PUSH mail '1'")
    (home,) = seen("mail")
    client, _ = hold(qproxy, db, home)
    tag(q, "QUEUE PUSH mail '2'")
    assert seen("mail")[1] != home
    tag(client, "COMMIT")


def test_a_queue_whose_server_waits_for_a_lock_goes_to_another(q, qproxy, db, seen, cluster, direct):
    """Both queues are at home on the same server, which one of them keeps."""
    tag(q, "QUEUE PUSH mail '1'")
    tag(q, "QUEUE PUSH news '1'")
    with qproxy.wire(db) as blocked:
        direct.execute("BEGIN")
        direct.execute("LOCK TABLE queue.q_mail IN SHARE MODE")
        blocked.query("QUEUE PUSH mail '2'")
        wait_for(lambda: cluster.psql("SELECT count(*) FROM pg_locks WHERE NOT granted AND database = "
                                      "(SELECT oid FROM pg_database WHERE datname = '%s')" % db) == "1",
                 "the push that waits")
        tag(q, "QUEUE PUSH news '2'")
        direct.execute("COMMIT")
        blocked.until()
    assert len(seen("mail")) == len(seen("news")) == 2
