"""Names of servers: slow, unknown, with several addresses, changing; nobody else waits for them."""

import pytest

from fakedns import A, AAAA, FakeDns
from pgwire import PgError, cancel, types
from proxy import wait_for


@pytest.fixture
def dns():
    with FakeDns() as server:
        yield server


def entry(cluster, host, db):
    return "host=%s port=%d dbname=%s" % (host, cluster.port, db)


def made(qbouncer, cluster, dns, db, hosts, **settings):
    return qbouncer(databases={h: entry(cluster, h + ".test", db) for h in hosts}, resolv_conf="{dir}/resolv.conf",
                    files={"resolv.conf": dns.resolv_conf}, **settings)


def test_name(qbouncer, cluster, dns, db):
    dns.addresses["good.test"] = ["127.0.0.1"]
    proxy = made(qbouncer, cluster, dns, db, ["good"])
    with proxy.wire("good") as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"
    row = proxy.wait_show("DNS_HOSTS", lambda r: r["hostname"] == "good.test")
    assert row["addrs"] == "127.0.0.1" and 0 <= int(row["ttl"]) <= 15
    assert proxy.console("SHOW DNS_ZONES") == [{"zonename": "test", "serial": "0", "count": "1"}]
    lists = {r["list"]: r["items"] for r in proxy.console("SHOW LISTS")}
    assert (lists["dns_names"], lists["dns_zones"], lists["dns_queries"]) == ("1", "1", "0")


def test_answer_is_remembered(qbouncer, cluster, dns, db):
    dns.addresses["good.test"] = ["127.0.0.1"]
    proxy = made(qbouncer, cluster, dns, db, ["good"])
    for _ in range(3):
        with proxy.wire("good") as c:
            c.simple("SELECT 1")
        proxy.console("RECONNECT")
        proxy.wait_pool("good", sv_idle=0)
    assert dns.asked.count("good.test") == 2  # A and AAAA


def test_unknown_name(qbouncer, cluster, dns, db):
    """NXDOMAIN is an error of the client, at once; remembered for dns_nxdomain_ttl."""
    proxy = made(qbouncer, cluster, dns, db, ["none"], dns_nxdomain_ttl="1", server_login_retry="0")
    with pytest.raises(PgError) as e:
        proxy.wire("none")
    assert e.value.fields["C"] == "08006" and "could not translate host name" in e.value.fields["M"]
    assert proxy.console("SHOW DNS_HOSTS")[0]["addrs"] == ""
    dns.addresses["none.test"] = ["127.0.0.1"]

    def comes():
        try:
            with proxy.wire("none") as c:
                return types(c.simple("SELECT 1")) == "TDCZ"
        except PgError:
            return False
    wait_for(comes, "the name")


def test_dead_nameserver_stalls_nobody_else(qbouncer, cluster, dns, db):
    """Whose server has a name without an answer waits; whose server is found is served."""
    dns.addresses["good.test"] = ["127.0.0.1"]
    dns.silent.add("slow.test")
    proxy = made(qbouncer, cluster, dns, db, ["good", "slow"])
    with proxy.wire() as waits:
        waits.startup(user="app", database="slow", wait=False)
        wait_for(lambda: "slow.test" in dns.asked, "the question")
        with proxy.wire("good") as c, proxy.wire(db) as d:
            for _ in range(20):
                assert types(c.simple("SELECT 1")) == types(d.simple("SELECT 1")) == "TDCZ"
        assert {r["list"]: r["items"] for r in proxy.console("SHOW LISTS")}["dns_pending"] == "1"
        got = waits.closed()
        assert got[-1].type == "E" and got[-1].sqlstate == "08006"


def test_last_addresses_serve_while_nobody_answers(qbouncer, cluster, dns, db):
    dns.addresses["good.test"] = ["127.0.0.1"]
    proxy = made(qbouncer, cluster, dns, db, ["good"], dns_max_ttl="0")
    with proxy.wire("good") as c:
        c.simple("SELECT 1")
    dns.dead = True
    proxy.console("RECONNECT")
    proxy.wait_pool("good", sv_idle=0)
    with proxy.wire("good") as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"
    assert "last addresses are used" in proxy.log_text()


def test_several_addresses_take_turns(qbouncer, cluster, dns, db):
    """Each new connection begins with the next one; one that is away is passed over."""
    dns.addresses["many.test"] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    proxy = made(qbouncer, cluster, dns, db, ["many"])
    clients = [proxy.wire("many") for _ in range(3)]
    for c in clients:
        c.simple("BEGIN")
        assert types(c.simple("SELECT 1")) == "TDCZ"
    assert proxy.console("SHOW DNS_HOSTS")[0]["addrs"] == "127.0.0.1,127.0.0.2,127.0.0.3"
    for c in clients:
        c.close()


def test_changed_address_is_followed(qbouncer, cluster, dns, db):
    """dns_zone_check_period: servers at an address that is gone are closed, though nobody connects."""
    dns.addresses["moves.test"] = ["127.0.0.1"]
    proxy = made(qbouncer, cluster, dns, db, ["moves"], dns_zone_check_period="0.2")
    with proxy.wire("moves") as c:
        c.simple("SELECT 1")
        proxy.wait_pool("moves", sv_idle=1)
        dns.addresses["moves.test"] = ["127.0.0.9"]
        proxy.wait_log("moves.test has no address 127.0.0.1 any more")
        proxy.wait_show("DNS_HOSTS", lambda r: r["addrs"] == "127.0.0.9")
        proxy.wait_pool("moves", sv_idle=0)


def test_cancel_goes_where_the_statement_runs(qbouncer, cluster, dns, db, direct):
    """Not where the name of its server leads by now."""
    dns.addresses["moves.test"] = ["127.0.0.1"]
    proxy = made(qbouncer, cluster, dns, db, ["moves"], dns_max_ttl="0")
    with proxy.wire("moves") as c:
        c.query("SELECT pg_sleep(30)")
        sleeps = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        wait_for(lambda: direct.execute(sleeps).fetchone() == (1,), "the statement")
        dns.addresses["moves.test"] = ["127.0.0.9"]
        cancel(c)
        assert c.until("Z")[-2].sqlstate == "57014"


@pytest.mark.parametrize("how", ["silent", "broken"])
@pytest.mark.parametrize("missing", [A, AAAA])
def test_half_an_answer_is_used(qbouncer, cluster, dns, db, missing, how):
    """One of both questions is not answered, or with an error: the addresses of the other serve."""
    dns.addresses["half.test"] = ["127.0.0.1", "::1"]
    getattr(dns, how).add(("half.test", missing))
    proxy = made(qbouncer, cluster, dns, db, ["half"])
    there = "::1" if missing == A else "127.0.0.1"
    if missing == A:
        # nobody may listen there: what counts is that it was tried
        with pytest.raises(PgError) as e:
            with proxy.wire("half") as c:
                c.simple("SELECT 1")
            raise PgError(c.log[-1])
        assert "could not translate" not in e.value.fields.get("M", "")
    else:
        with proxy.wire("half") as c:
            assert types(c.simple("SELECT 1")) == "TDCZ"
    assert proxy.wait_show("DNS_HOSTS", lambda r: r["addrs"])["addrs"] == there


def test_half_that_is_late_keeps_its_last_addresses(qbouncer, cluster, dns, db):
    """A name that lives on IPv6 alone: no answer to AAAA does not mean that the name is gone."""
    dns.addresses["six.test"] = ["::1"]
    proxy = made(qbouncer, cluster, dns, db, ["six"], dns_max_ttl="0", server_login_retry="0")

    def come():
        try:
            with proxy.wire("six") as c:
                c.simple("SELECT 1")
        except PgError as e:
            return e.fields["M"]
        return ""

    come()
    assert proxy.console("SHOW DNS_HOSTS")[0]["addrs"] == "::1"
    dns.silent.add(("six.test", AAAA))
    proxy.console("RECONNECT")
    assert "could not translate" not in come()
    assert proxy.console("SHOW DNS_HOSTS")[0]["addrs"] == "::1"


def test_half_that_is_there_does_not_wait_for_the_other(qbouncer, cluster, dns, db):
    """Also the next time, while the first question has no answer yet; and what comes late still counts."""
    dns.addresses["half.test"] = ["127.0.0.1", "::1"]
    dns.silent.add(("half.test", AAAA))
    proxy = qbouncer(databases={"half": entry(cluster, "half.test", db)}, resolv_conf="{dir}/resolv.conf", dns_max_ttl="0",
                     files={"resolv.conf": dns.resolv_conf.replace("timeout:1", "timeout:20")})
    for n in range(3):
        with proxy.wire("half") as c:
            assert types(c.simple("SELECT 1")) == "TDCZ"
        assert dns.questions.count(("half.test", A)) == n + 1 and dns.questions.count(("half.test", AAAA)) == 1
        assert {r["list"]: r["items"] for r in proxy.console("SHOW LISTS")}["dns_queries"] == "1"
        proxy.console("RECONNECT")
        proxy.wait_pool("half", sv_idle=0)
    dns.speak()
    proxy.wait_show("DNS_HOSTS", lambda r: r["addrs"] == "127.0.0.1,::1")


def test_names_of_the_hosts_file(qbouncer, cluster, dns, db):
    proxy = made(qbouncer, cluster, dns, db, [])
    proxy.databases["local"] = entry(cluster, "localhost", db)
    proxy.reload()
    with proxy.wire("local") as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"
    assert not dns.asked
