"""KEY and GROUP through the proxy: tags, ids, waiters that are woken, orders over many workers."""

import threading

from queuetest import error, parked, tag, take, woken


def test_key(proxy, db):
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        assert tag(c, "QUEUE PUSH mail '1' KEY 'k'") == "INSERT 0 1"
        assert tag(c, "QUEUE PUSH mail '2' KEY 'k'") == "INSERT 0 0"
        assert c.rows("QUEUE PUSH mail '2' KEY 'k' ON DUPLICATE IGNORE RETURNING ID") == [{"id": "1"}]
        assert tag(c, "QUEUE PUSH mail '3' KEY 'k' ON DUPLICATE REPLACE") == "INSERT 0 1"
        assert error(c, "QUEUE PUSH mail '3' KEY 'k' ON DUPLICATE ERROR").sqlstate == "23505"
        assert error(c, "QUEUE PUSH mail '3' KEY 'k' ON DUPLICATE maybe").sqlstate == "22023"
        assert error(c, "QUEUE PUSH mail '3' ON DUPLICATE ERROR").sqlstate == "22023"
        assert error(c, "QUEUE PUSH mail '3', '4' KEY 'k'").sqlstate == "22023"
        job = take(c)
        assert job["payload"] == "3" and job["key"] == "k"
        got = c.hold().parse("", "QUEUE PUSH mail $1 KEY $2 ON DUPLICATE RERUN").bind("", "", ["4", "k"]).execute().sync()
        assert [m.type for m in got.push().until("Z")] == ["1", "2", "C", "Z"]
        tag(c, "QUEUE DONE '%s'" % job["token"])
        again = take(c)
        assert again["id"] == job["id"] and again["attempt"] == "1"
        tag(c, "QUEUE DONE '%s'" % again["token"])
        assert c.rows("QUEUE TAKE mail") == []


def test_a_job_that_runs_again_wakes(proxy, db):
    with proxy.wire(db) as c, proxy.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1' KEY 'k'")
        job = take(c)
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        tag(c, "QUEUE PUSH mail '2' KEY 'k' ON DUPLICATE REPLACE")
        tag(c, "QUEUE DONE '%s'" % job["token"])
        assert woken(w)["payload"] == "2"


def test_the_next_of_a_group_wakes(proxy, db):
    with proxy.wire(db) as c, proxy.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        assert tag(c, "QUEUE PUSH mail '1', '2' GROUP 'g'") == "INSERT 0 2"
        job = take(c)
        assert job["group"] == "g"
        w.query("QUEUE TAKE mail LIMIT 5 WAIT '30s'")
        parked(w)
        tag(c, "QUEUE DONE '%s'" % job["token"])
        assert woken(w)["payload"] == "2"


def test_key_in_a_transaction(proxy, db):
    with proxy.wire(db) as c, proxy.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        tag(c, "BEGIN")
        tag(c, "QUEUE PUSH mail '1' KEY 'k' GROUP 'g'")
        tag(c, "ROLLBACK")
        tag(c, "BEGIN")
        tag(c, "QUEUE PUSH mail '2' KEY 'k' GROUP 'g'")
        tag(c, "COMMIT")
        assert woken(w)["payload"] == "2"


def test_groups_and_many_workers(qbouncer, db):
    """Each group in order and one at a time, with failures and workers that vanish."""
    groups, length, workers = 5, 12, 6
    proxy = qbouncer(default_pool_size=4)
    running, seen, problems, lock = set(), {g: [] for g in range(groups)}, [], threading.Lock()

    def work(number):
        done = 0
        while True:
            with proxy.wire(db) as c:
                while done % 7 != 6:
                    rows = c.rows("QUEUE TAKE mail WAIT '20s'")
                    if not rows:
                        return
                    job = rows[0]
                    if job["payload"] == "-1":
                        tag(c, "QUEUE DONE '%s'" % job["token"])
                        return
                    g, n = divmod(int(job["payload"]), 1000)
                    with lock:
                        if g in running:
                            problems.append("two of group %d at once" % g)
                        running.add(g)
                        if n not in (len(seen[g]), len(seen[g]) - 1):
                            problems.append("group %d: %d after %d" % (g, n, len(seen[g])))
                    done += 1
                    fail = (n + number) % 5 == 0 and job["attempt"] == "1"
                    with lock:
                        running.discard(g)
                        if not fail and n == len(seen[g]):
                            seen[g].append(n)
                    if fail:
                        tag(c, "QUEUE FAIL '%s' RETRY IN '0'" % job["token"])
                    else:
                        tag(c, "QUEUE DONE '%s'" % job["token"])
                done += 1

    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        threads = [threading.Thread(target=work, args=(n,)) for n in range(workers)]
        for t in threads:
            t.start()
        for n in range(length):
            for g in range(groups):
                tag(c, "QUEUE PUSH mail '%d' GROUP 'g%d'" % (g * 1000 + n, g))
        while any(len(s) < length for s in seen.values()) and any(t.is_alive() for t in threads):
            threads[0].join(0.05)
        tag(c, "QUEUE PUSH mail " + ", ".join(["'-1'"] * workers))
        for t in threads:
            t.join(60)
        assert not problems
        assert all(s == list(range(length)) for s in seen.values())
        assert c.rows("QUEUE PEEK mail STATE blocked") == []
