"""What the tests of sessions share.

For:     test/it/session.
Entry points: errors, tags, extended, pinned, stat.
"""


def errors(messages):
    return [m.sqlstate for m in messages if m.type == "E"]


def tags(messages):
    return [m.tag for m in messages if m.type == "C"]


def extended(c, sql, values=()):
    c.hold().parse("", sql).bind("", "", values).describe("P").execute().sync().push()
    return c.until("Z")


def pinned(proxy, db):
    """Why the clients of the database keep their servers, of those that do."""
    return sorted(r["pinned"] for r in proxy.console("SHOW CLIENTS") if r["database"] == db and r["pinned"])


def stat(proxy, db, name):
    return sum(int(r[name]) for r in proxy.console("SHOW STATS") if r["database"] == db)
