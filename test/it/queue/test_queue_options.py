"""Options of a queue as clients of the proxy see them: max_length and unlogged."""

from queuetest import error, tag


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
        # one batch is under way at a time: each sees what those before it have pushed
        assert outcomes.count("C") == 17 and outcomes.count("E") == 13
        assert len(c.rows("QUEUE TAKE mail LIMIT 50")) == 17


def test_unlogged(proxy, db):
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (unlogged = true)")
        assert c.rows("QUEUE LIST")[0]["unlogged"] == "t"
        tag(c, "QUEUE PUSH mail '1'")
        assert tag(c, "QUEUE ALTER mail SET (unlogged = false)") == "ALTER TABLE"
        (job,) = c.rows("QUEUE TAKE mail")
        assert tag(c, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
