"""Who holds back vacuum is told in the log: once, and when it is over. Ten minutes are not waited for: what is
found then (test/sql/test_health.py) is said by a function in its place."""

from proxy import wait_for

HOLDERS = ("CREATE OR REPLACE FUNCTION queue._holders(young interval DEFAULT '10 s', old interval DEFAULT '1 min', "
           "few int8 DEFAULT 1000, many int8 DEFAULT 100000) "
           "RETURNS TABLE (about text, name text, ok bool, value text, hint text) LANGUAGE sql AS $$%s$$")
ONE = ("SELECT 'snapshot', 'pid 77', false, 'for 21 min 12 s, 5210 transactions back, app, psql, idle in transaction, "
       "SELECT ''secret''', 'SELECT pg_terminate_backend(77)'")
TOLD = ("holds back vacuum, for 21 min 12 s: takes read past the dead rows of all jobs since. "
        "QUEUE HEALTH shows it; to end it: SELECT pg_terminate_backend(77)")


def looks(proxy, cluster, db):
    """It looks when its session comes up."""
    mark = len(proxy.log_text())
    cluster.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'qbouncer system' "
                 "AND datname = '%s'" % db)
    wait_for(lambda: "system session is up" in proxy.log_text(mark), "the session")


def test_it_is_told_once(proxy, cluster, db, direct):
    app = proxy.wire(db)
    app.simple("QUEUE CREATE mail")
    direct.execute(HOLDERS % ONE)
    app.rows("QUEUE TAKE mail WAIT '10ms'")
    wait_for(lambda: "%s: snapshot pid 77 %s" % (db, TOLD) in proxy.log_text(), "the warning")
    assert "secret" not in proxy.log_text()
    looks(proxy, cluster, db)
    direct.execute(HOLDERS % ONE.replace("pid 77", "pid 78"))
    looks(proxy, cluster, db)
    wait_for(lambda: "%s: snapshot pid 78 %s" % (db, TOLD) in proxy.log_text(), "another one")
    assert proxy.log_text().count("pid 77 holds back") == 1
    direct.execute(HOLDERS % (ONE + " WHERE false"))
    looks(proxy, cluster, db)
    wait_for(lambda: "%s: snapshot pid 78 does not hold back vacuum any more" % db in proxy.log_text(), "that it is over")
