"""A queue in which very many jobs become due at one instant, through the proxy: it is dealt with in steps, and
everything else goes on in between."""

from queuetest import parked, stats, tag, take

DUE = 100000


def test_many_due_at_once(proxy, db):
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        workers = [proxy.wire(db) for _ in range(3)]
        for w in workers:
            w.query("QUEUE TAKE mail LIMIT 10 WAIT '60s'")
        parked(*workers)
        # nobody tells them: the look that comes now and then finds the jobs
        tag(c, "INSERT INTO queue.q_mail (state, run_at, payload) "
               "SELECT 'later', '2020-01-01', to_jsonb(g) FROM generate_series(1, %d) AS g" % DUE)
        got = []
        for w in workers:
            got += [int(m.text_row[4]) for m in w.until("Z") if m.type == "D"]
        assert sorted(got) == list(range(1, 31))
        for n in range(5):
            assert tag(c, "QUEUE PUSH mail '\"now\"' PRIORITY %d" % (n + 1)) == "INSERT 0 1"
            assert take(c)["payload"] == '"now"'
        assert take(c)["payload"] == "31"
        # each of these takes has made some hundreds ready, not all of them
        assert stats(c)["ready"] == DUE - 31    # what is due counts as ready
        (stored,) = c.rows("SELECT count(*) FILTER (WHERE state = 'later') AS later FROM queue.q_mail")
        assert int(stored["later"]) > DUE // 2
        for w in workers:
            w.query("QUEUE POP mail LIMIT 1000")
        for w in workers:
            assert len([m for m in w.until("Z") if m.type == "D"]) > 0
            w.close()
