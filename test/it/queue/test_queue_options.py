"""Options of a queue as clients of the proxy see them: max_length and unlogged."""

from queuetest import HEARTBEAT, error, parked, qproxy, tag, woken  # noqa: F401


def test_a_full_queue(proxy, db):
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (max_length = 2)")
        assert tag(c, "QUEUE PUSH mail '1'") == "INSERT 0 1"
        full = error(c, "QUEUE PUSH mail '2', '3'")
        assert (full.sqlstate, full.message) == ("QB004", 'queue "mail" is full')
        assert "2" in full.fields["D"] and "ALTER mail" in full.fields["H"]
        got = c.hold().parse("", "QUEUE PUSH mail $1").bind("", "", ["2"]).execute().sync()
        assert [m.type for m in got.push().until("Z")] == ["1", "2", "C", "Z"]
        got = c.hold().parse("", "QUEUE PUSH mail $1").bind("", "", ["3"]).execute().sync()
        assert [m.type for m in got.push().until("Z")] == ["1", "2", "E", "Z"]
        tag(c, "BEGIN")
        tag(c, "SAVEPOINT s")
        assert error(c, "QUEUE PUSH mail '3'").sqlstate == "QB004"
        tag(c, "ROLLBACK TO s")
        tag(c, "COMMIT")
        assert error(c, "QUEUE PUSH mail SELECT '3'").sqlstate == "QB004"
        assert error(c, "QUEUE PUSH mail '3' KEY 'k'").sqlstate == "QB004"
        (job,) = c.rows("QUEUE TAKE mail")
        assert error(c, "QUEUE PUSH mail '3'").sqlstate == "QB004"
        tag(c, "QUEUE DONE '%s'" % job["token"])
        assert tag(c, "QUEUE PUSH mail '3'") == "INSERT 0 1"
        (row,) = c.rows("QUEUE LIST")
        assert (row["max_length"], row["unlogged"]) == ("2", "f")
        tag(c, "QUEUE ALTER mail RESET (max_length)")
        assert tag(c, "QUEUE PUSH mail '4', '5'") == "INSERT 0 2"
        assert c.rows("QUEUE LIST")[0]["max_length"] is None


def test_of_many_at_once_those_that_fit(proxy, db):
    """Whatever is merged with whatever: as many pushes succeed as there are places."""
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (max_length = 17)")
        wires = [proxy.wire(db) for _ in range(10)]
        for w in wires:
            for n in range(3):
                w.parse("", "QUEUE PUSH mail $1").bind("", "", [str(n)]).execute().sync()
        outcomes = []
        for w in wires:
            for _ in range(3):
                outcomes += [m.type for m in w.until("Z") if m.type in "CE"]
            w.close()
        # none is refused before it is full; a batch that goes beside one that takes longer than a second does not see that
        pushed = outcomes.count("C")
        assert pushed >= 17 and pushed + outcomes.count("E") == 30
        assert error(c, "QUEUE PUSH mail '1'").sqlstate == "QB004"
        assert len(c.rows("QUEUE TAKE mail LIMIT 50")) == pushed


def test_unlogged(proxy, db):
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (unlogged = true)")
        assert c.rows("QUEUE LIST")[0]["unlogged"] == "t"
        tag(c, "QUEUE PUSH mail '1'")
        assert tag(c, "QUEUE ALTER mail SET (unlogged = false)") == "ALTER TABLE"
        (job,) = c.rows("QUEUE TAKE mail")
        assert tag(c, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"


def test_max_run(qproxy, db):
    """Whoever holds the lease, and however: a take, one that is handed over, EXTEND, HOLD."""
    lasts = "SELECT extract(epoch FROM lease_until - taken_at)::int AS s FROM queue.q_mail"
    with qproxy.wire(db) as c, qproxy.wire(db) as w:
        tag(c, "QUEUE CREATE mail WITH (max_run = '10 min')")
        assert c.rows("QUEUE LIST")[0]["max_run"] == "00:10:00"
        for _ in range(8):  # by its name, then by its number
            tag(c, "QUEUE PUSH mail '1'")
            (job,) = c.rows("QUEUE TAKE mail LEASE '1 h'")
            assert c.rows(lasts) == [{"s": "600"}]
            assert tag(c, "QUEUE EXTEND '%s' LEASE '1 h'" % job["token"]) == "UPDATE 1"
            assert c.rows(lasts) == [{"s": "600"}]
            tag(c, "QUEUE DONE '%s'" % job["token"])
        w.query("QUEUE TAKE mail WAIT '1 min' LEASE '1 h'")
        parked(w)
        tag(c, "QUEUE PUSH mail '2'")
        token = woken(w)["token"]
        assert c.rows(lasts) == [{"s": "600"}]
        got = w.hold().parse("", "QUEUE EXTEND $1 LEASE $2").bind("", "", [token, "1 h"]).execute().sync()
        assert [m.type for m in got.push().until("Z")] == ["1", "2", "C", "Z"]
        assert c.rows(lasts) == [{"s": "600"}]
        tag(c, "QUEUE ALTER mail SET (max_run = '1 min')")
        tag(w, "QUEUE DONE '%s'" % token)
        tag(c, "QUEUE PUSH mail '3' KEY 'k'")
        tag(c, "BEGIN")
        tag(c, "QUEUE ALTER mail RESET (max_run)")
        tag(c, "ROLLBACK")
        c.rows("QUEUE TAKE mail HOLD")
        assert c.rows(lasts) == [{"s": "60"}]
        assert error(c, "QUEUE ALTER mail SET (max_run = '0')").sqlstate == "22023"


def take(c, queue="mail"):
    (job,) = c.rows("QUEUE TAKE %s" % queue)
    return job["token"]


def test_dead_jobs_go_to_another_queue(qbouncer, db):
    """Who waits there hears of it at once, however the job died."""
    proxy = qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="1h")
    with proxy.wire(db) as c, proxy.wire(db) as w:
        tag(c, "QUEUE CREATE graves")
        tag(c, "QUEUE CREATE mail WITH (dead_queue = graves, max_attempts = 1)")
        assert c.rows("QUEUE LIST")[1]["dead_queue"] == "graves"
        for how in range(5):
            tag(c, "QUEUE PUSH mail '%d'" % how)
            w.query("QUEUE TAKE graves WAIT '50s'")
            parked(w)
            if how == 4:
                with proxy.wire(db) as gone:
                    take(gone)
                    gone.sock.close()
            else:
                token = take(c)
                if how == 1:
                    tag(c, "BEGIN")
                if how == 2:
                    tag(c, "BEGIN")
                    assert c.rows("QUEUE TAKE mail") == []
                    tag(c, "ROLLBACK")
                if how == 3:
                    got = c.hold().parse("", "QUEUE FAIL $1 ERROR $2 FINAL").bind("", "", [token, "no"]).execute().sync()
                    assert "C" in [m.type for m in got.push().until("Z")]
                else:
                    assert tag(c, "QUEUE FAIL '%s' ERROR 'no'" % token) == "UPDATE 1"
                if how == 1:
                    tag(c, "COMMIT")
            job = woken(w)
            assert job["payload"] == str(how) and '"queue": "mail"' in job["headers"]
            tag(w, "QUEUE DONE '%s'" % job["token"])
        assert c.rows("QUEUE PEEK mail") == []
        assert error(c, "QUEUE ALTER graves SET (dead_queue = mail)").sqlstate == "22023"
        assert error(c, "QUEUE ALTER mail SET (dead_queue = nowhere)").sqlstate == "42P01"


def test_pushes_of_a_transaction(proxy, db):
    """Those of others that are merged with them do not count."""
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (max_per_transaction = 2)")
        wires = [proxy.wire(db) for _ in range(10)]
        for w in wires:
            for n in (1, 2, 3):
                w.parse("", "QUEUE PUSH mail %s" % ", ".join("'1'" for _ in range(n))).bind("", "", []).execute().sync()
        for w in wires:
            assert [m.type for _ in range(3) for m in w.until("Z") if m.type in "CE"] == ["C", "C", "E"]
            w.close()
        assert len(c.rows("QUEUE TAKE mail LIMIT 50")) == 30
        tag(c, "BEGIN")
        assert tag(c, "QUEUE PUSH mail '1'") == "INSERT 0 1"
        assert tag(c, "QUEUE PUSH mail SELECT '1'") == "INSERT 0 1"
        assert error(c, "QUEUE PUSH mail '1'").sqlstate == "QB004"
        tag(c, "ROLLBACK")


def test_the_oldest_job_goes(proxy, db):
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (max_length = 2, overflow = drop_oldest)")
        for n in range(5):
            assert tag(c, "QUEUE PUSH mail '%d'" % n) == "INSERT 0 1"
        assert [job["payload"] for job in c.rows("QUEUE TAKE mail LIMIT 9")] == ["3", "4"]
        assert error(c, "QUEUE PUSH mail '5'").sqlstate == "QB004"
