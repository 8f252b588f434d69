"""The arithmetic of schedules: cron expressions beside a second implementation, changes of clocks beside a third
(minute by minute) and beside a table by hand, intervals, errors."""

import random
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, croniter

UTC = timezone.utc
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
DAYS = "sun mon tue wed thu fri sat".split()

# some with a change at midnight, of half an hour, of a whole day, on a Friday, and southern ones
ZONES = [
    "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Los_Angeles",
    "America/St_Johns", "America/Havana", "America/Sao_Paulo", "America/Asuncion", "America/Santiago",
    "Australia/Sydney", "Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Apia",
    "Asia/Beirut", "Asia/Tehran", "Asia/Amman", "Africa/Cairo", "Africa/Casablanca", "Antarctica/Troll", "UTC",
]  # fmt: skip

NEXT = "SELECT queue._cron_next(queue._cron(%s), %s, %s)"


class Expressions:
    """Expressions at random that croniter reads as cron does: it takes 0-6 and */1 for *, and */2 for no *."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def item(self, low, high, names, steps):
        pick = self.random.random()

        def said(value):
            return names[value - low] if names and self.random.random() < 0.3 else str(value)

        first = self.random.randint(low, high)
        last = self.random.randint(first, high)
        step = self.random.randint(2, max(2, (high - low) // 2))
        if pick < 0.4:
            return said(first)
        if pick < 0.6:
            return f"{said(first)}-{said(last)}"
        if pick < 0.8 or not steps:
            return f"{said(first)}-{said(last)}/{step}"
        return f"*/{step}"

    def field(self, low, high, names=None, steps=True):
        if self.random.random() < 0.35:
            return "*"
        return ",".join(self.item(low, high, names, steps) for _ in range(self.random.choice([1, 1, 1, 2, 3])))

    def days(self):
        """Days of the month and of the week: neither is everything, but as *."""
        while True:
            month = self.field(1, 31, steps=False)
            week = self.field(0, 6, DAYS, steps=False)
            fields = croniter.expand(f"0 0 {month} * {week}")[0]
            if all(text == "*" or found != ["*"] for text, found in ((month, fields[2]), (week, fields[4]))):
                return month, week

    def make(self):
        month, week = self.days()
        hours = self.field(0, 23)
        return f"{self.field(0, 59)} {hours} {month} {self.field(1, 12, MONTHS)} {week}"


def changes_near(zone, t, days=2):
    """Do the clocks change within so many days of t?"""
    at = [(t + timedelta(days=n)).astimezone(zone).utcoffset() for n in (-days, 0, days)]
    return len(set(at)) > 1


@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_beside_croniter(db, part):
    made = Expressions(part)
    compared = 0
    wrong = []
    while compared < 2500:
        expr = made.make()
        zone = made.random.choice(ZONES)
        # what the clocks will do in years to come is no more than a rule
        t = datetime(2001, 1, 1, tzinfo=UTC) + timedelta(seconds=made.random.randint(0, 34 * 366 * 86400))
        here = ZoneInfo(zone)
        try:
            want = croniter(expr, t.astimezone(here).replace(tzinfo=None), max_years_between_matches=45)
            want = want.get_next(datetime).replace(tzinfo=here).astimezone(UTC)
        except CroniterBadDateError:
            # a day that these months do not have: croniter forgets the days of the week then
            continue
        if changes_near(here, t) or changes_near(here, want):
            continue
        compared += 1
        got = db.value(NEXT, expr, zone, t)
        if got != want:
            wrong.append((expr, zone, t, want, got))
    assert not wrong


def bits(number):
    return {n for n in range(60) if number >> n & 1}


class Minutes:
    """The minutes around a change of clocks, and what clocks show then. When it is due, as the rules are written:
    each minute is looked at."""

    def __init__(self, zone, change):
        here = ZoneInfo(zone)
        begin = change - timedelta(days=2)
        self.instants = [begin + timedelta(minutes=n) for n in range(4 * 1440)]
        self.shown = [t.astimezone(here).replace(tzinfo=None) for t in self.instants]
        self.first = {}
        for t, shown in zip(self.instants, self.shown):
            self.first.setdefault(shown, t)
        # a day that is left out is shown by none of them
        count = int((self.shown[-1] - self.shown[0]).total_seconds()) // 60
        self.all = [self.shown[0] + timedelta(minutes=n) for n in range(count)]

    def due(self, cron):
        _, minutes, hours, month, months, week = (bits(n) for n in cron[:6])

        def fits(shown):
            if shown.minute not in minutes or shown.hour not in hours or shown.month not in months:
                return False
            by_month, by_week = shown.day in month, (shown.weekday() + 1) % 7 in week
            return by_month and by_week if cron[6] & 2 else by_month or by_week

        if cron[6] & 1:  # a free hour: whenever a clock shows it
            return {t for t, shown in zip(self.instants, self.shown) if fits(shown)}
        # the first time that a clock shows it, or else the first time that it shows a later one
        return {self.first.get(shown) or next(t for t, later in zip(self.instants, self.shown) if later >= shown)
                for shown in self.all if fits(shown)}  # fmt: skip


def changes_of(zone, year):
    """The minutes of a year at which the clocks of a zone change."""
    here = ZoneInfo(zone)

    def ahead(t):
        return t.astimezone(here).utcoffset()

    found = []
    t = datetime(year, 1, 1, tzinfo=UTC)
    while t.year == year:
        later = t + timedelta(hours=12)
        if ahead(t) != ahead(later):
            found.append(next(m for m in (t + timedelta(minutes=n) for n in range(721)) if ahead(m) != ahead(t)))
        t = later
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_changes_of_clocks(db, zone):
    """Around each change of each zone: what is due, one after the other, beside a look at each minute."""
    made = Expressions(zone)
    for change in (c for year in (2011, 2018, 2024) for c in changes_of(zone, year)):
        around = Minutes(zone, change)
        shown = change.astimezone(ZoneInfo(zone))
        hours = [shown.hour, (shown.hour - 1) % 24, (shown.hour - 2) % 24]
        exprs = [f"{m} {h} * * *" for m in ("0,30", "*/20") for h in hours]
        exprs += ["*/30 * * * *", "15 */2 * * *", f"0,59 {hours[0]}-23/1 * * *", f"5 */24 {shown.day} * *"]
        exprs += [f"{made.field(0, 59)} {made.field(0, 23)} * * *" for _ in range(3)]
        begin, end = change - timedelta(hours=26), change + timedelta(hours=26)
        for expr in exprs:
            cron = db.value("SELECT queue._cron(%s)", expr)
            want = sorted(t for t in around.due(cron) if begin < t < end)
            got = db.column(
                "WITH RECURSIVE due (t) AS (SELECT queue._cron_next(%s, %s, %s)"
                " UNION ALL SELECT queue._cron_next(%s, %s, t) FROM due WHERE t < %s) SELECT t FROM due WHERE t < %s",
                cron, zone, begin, cron, zone, end, end)  # fmt: skip
            assert got == want, (expr, zone, change)


# zone, expression, after; then the local times at which it is due next, with what the clock is ahead of UTC
BY_HAND = [
    # spring, 02:00 becomes 03:00
    ("Europe/Berlin", "30 2 * * *", "2026-03-28 12:00+01", ["2026-03-29 03:00+02", "2026-03-30 02:30+02"]),
    ("Europe/Berlin", "0,30 2,3 * * *", "2026-03-28 12:00+01", ["2026-03-29 03:00+02", "2026-03-29 03:30+02"]),
    ("Europe/Berlin", "*/30 * * * *", "2026-03-29 01:00+01", ["2026-03-29 01:30+01", "2026-03-29 03:00+02"]),
    ("Europe/Berlin", "15 */2 * * *", "2026-03-29 00:15+01", ["2026-03-29 04:15+02", "2026-03-29 06:15+02"]),
    ("Europe/London", "30 1 * * *", "2026-03-28 12:00+00", ["2026-03-29 02:00+01", "2026-03-30 01:30+01"]),
    ("America/New_York", "15 2 * * *", "2026-03-07 12:00-05", ["2026-03-08 03:00-04", "2026-03-09 02:15-04"]),
    ("Pacific/Auckland", "45 2 * * *", "2026-09-26 12:00+12", ["2026-09-27 03:00+13", "2026-09-28 02:45+13"]),
    ("Asia/Beirut", "0 0 * * *", "2024-03-30 12:00+02", ["2024-03-31 01:00+03", "2024-04-01 00:00+03"]),
    ("America/Havana", "15 0 * * *", "2024-03-09 12:00-05", ["2024-03-10 01:00-04", "2024-03-11 00:15-04"]),
    ("America/Sao_Paulo", "0 0 4 11 *", "2018-11-01 12:00-03", ["2018-11-04 01:00-02", "2019-11-04 00:00-03"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2024-10-05 12:00+10:30", ["2024-10-06 02:30+11", "2024-10-07 02:15+11"]),
    ("Africa/Cairo", "30 0 * * *", "2024-04-25 12:00+02", ["2024-04-26 01:00+03", "2024-04-27 00:30+03"]),
    ("Africa/Casablanca", "30 2 * * *", "2024-04-13 12:00+00", ["2024-04-14 03:00+01", "2024-04-15 02:30+01"]),
    ("Antarctica/Troll", "30 1 * * *", "2024-03-30 12:00+00", ["2024-03-31 03:00+02", "2024-04-01 01:30+02"]),
    # autumn, 03:00 becomes 02:00
    ("Europe/Berlin", "30 2 * * *", "2026-10-24 12:00+02", ["2026-10-25 02:30+02", "2026-10-26 02:30+01"]),
    ("Europe/Berlin", "30 * * * *", "2026-10-25 01:30+02",
     ["2026-10-25 02:30+02", "2026-10-25 02:30+01", "2026-10-25 03:30+01"]),
    ("Europe/Berlin", "30 2 * * *", "2026-10-25 02:10+01", ["2026-10-26 02:30+01"]),
    ("Europe/Berlin", "*/30 2 * * *", "2026-10-25 02:00+02", ["2026-10-25 02:30+02", "2026-10-26 02:00+01"]),
    ("America/Los_Angeles", "0 1 * * *", "2026-10-31 12:00-07", ["2026-11-01 01:00-07", "2026-11-02 01:00-08"]),
    ("America/St_Johns", "45 1 * * *", "2024-11-02 12:00-02:30", ["2024-11-03 01:45-02:30", "2024-11-04 01:45-03:30"]),
    ("America/Asuncion", "30 23 * * *", "2024-03-23 12:00-03", ["2024-03-23 23:30-03", "2024-03-24 23:30-04"]),
    ("America/Santiago", "30 23 * * *", "2024-04-06 12:00-03", ["2024-04-06 23:30-03", "2024-04-07 23:30-04"]),
    ("America/Havana", "30 */24 3 11 *", "2024-11-03 00:10-04", ["2024-11-03 00:30-04", "2024-11-03 00:30-05"]),
    ("Pacific/Chatham", "30 3 * * *", "2024-04-06 12:00+13:45", ["2024-04-07 03:30+13:45", "2024-04-08 03:30+12:45"]),
    ("Asia/Tehran", "30 23 * * *", "2018-09-21 12:00+04:30", ["2018-09-21 23:30+04:30", "2018-09-22 23:30+03:30"]),
    ("Asia/Amman", "30 0 * * fri", "2018-10-25 12:00+03", ["2018-10-26 00:30+03", "2018-11-02 00:30+02"]),
    ("Australia/Sydney", "30 2 * * *", "2024-04-06 12:00+11", ["2024-04-07 02:30+11", "2024-04-08 02:30+10"]),
    # a day that was left out
    ("Pacific/Apia", "0 12 * * *", "2011-12-29 12:00-10", ["2011-12-31 00:00+14", "2011-12-31 12:00+14"]),
    ("Pacific/Apia", "0 */12 * * *", "2011-12-29 12:00-10", ["2011-12-31 00:00+14", "2011-12-31 12:00+14"]),
    # none
    ("UTC", "0 0 29 2 *", "2096-02-29 00:00+00", ["2104-02-29 00:00+00"]),
    ("UTC", "0 0 29 2 */7", "2080-01-01 00:00+00", ["2088-02-29 00:00+00", "2128-02-29 00:00+00"]),
    ("UTC", "0 0 13 * fri", "2026-11-10 00:00+00", ["2026-11-13 00:00+00", "2026-11-20 00:00+00"]),
    ("UTC", "0 0 1,15 * */2", "2026-11-01 00:00+00", ["2026-11-15 00:00+00", "2026-12-01 00:00+00"]),
    ("UTC", "10-20/5 0 0 1 1 *", "2026-11-01 00:00+00",
     ["2027-01-01 00:00:10+00", "2027-01-01 00:00:15+00", "2027-01-01 00:00:20+00", "2028-01-01 00:00:10+00"]),
    ("UTC", "5/20 12 * * *", "2026-11-01 00:00+00", ["2026-11-01 12:05+00", "2026-11-01 12:25+00", "2026-11-01 12:45+00"]),
    ("UTC", "0 0 * * 5-0", "2026-11-19 00:00+00", ["2026-11-20 00:00+00", "2026-11-21 00:00+00", "2026-11-22 00:00+00",
                                                  "2026-11-27 00:00+00"]),
]  # fmt: skip


@pytest.mark.parametrize("zone, expr, after, due", BY_HAND)
def test_by_hand(db, zone, expr, after, due):
    for t in due:
        same = db.row("SELECT queue._cron_next(queue._cron(%s), %s, %s) = %s::timestamptz,"
                           " queue._cron_next(queue._cron(%s), %s, %s)", expr, zone, after, t, expr, zone, after)  # fmt: skip
        assert same[0], (t, same[1])
        after = t


@pytest.mark.parametrize("short, long", [
    ("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@weekly", "0 0 * * sun"),
    ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), (" 1  2\t3 JAN Mon ", "1 2 3 1 1"),
    ("0 0 * * 7", "0 0 * * 0"), ("0 0 * * 6-7", "0 0 * * 6,0"), ("0 0 * * 0-7", "0 0 * * 0-6"), ("7 1 2 3 * *", "7 1 2 3 * *"),
])  # fmt: skip
def test_same(db, short, long):
    assert db.value("SELECT queue._cron(%s) = queue._cron(%s)", short, long)


@pytest.mark.parametrize("expr, message", [
    ("", "is no cron expression"), ("* * * *", "is no cron expression"), ("* * * * * * *", "is no cron expression"),
    ("@reboot", "is no cron expression"), ("60 * * * *", "'60' is no minute"), ("* 24 * * *", "'24' is no hour"),
    ("* * 0 * *", "'0' is no day of the month"), ("* * 32 * *", "'32' is no day of the month"),
    ("* * * 13 *", "'13' is no month"), ("* * * mai *", "'mai' is no month"), ("* * * * 8", "'8' is no day of the week"),
    ("* * * * jan", "'jan' is no day of the week"), ("mon * * * *", "'mon' is no minute"), ("60 * * * * *", "'60' is no second"),
    ("*/0 * * * *", "the step of '*/0' is not between 1 and 60"), ("*/61 * * * *", "the step of '*/61'"), ("* * * * */8", "the step of '*/8'"),
    ("5-1 * * * *", "the range '5-1' ends before it begins"), ("1,,2 * * * *", "'' is no minute"),
    ("-1 * * * *", "'-1' is no minute"), ("1- * * * *", "'1-' is no minute"), ("L * * * *", "'l' is no minute"),
    ("* * L * *", "'l' is no day of the month"), ("* * 15W * *", "'15w' is no day of the month"), ("1.5 * * * *", "'1.5' is no minute"),
    ("99999999999 * * * *", "'99999999999' is no minute"), ("0 0 30 2 *", "is never due"), ("0 0 31 2,4,6,9,11 *", "is never due"),
    ("* * * * *" + " " * 500, "is no cron expression"), ("'; DROP TABLE x; --", "'--' is no day of the week"),
])  # fmt: skip
def test_errors(db, expr, message):
    error = db.fails("22023", "SELECT queue._cron(%s)", expr)
    assert message in error.message_primary
    assert error.message_hint


def test_null(db):
    db.fails("22004", "SELECT queue._cron(NULL)")
    assert db.value("SELECT queue._cron_next(queue._cron('@daily'), 'UTC', 'infinity')") is None
    db.fails("22023", "SELECT queue._cron_next(queue._cron('@daily'), 'Europe/Atlantis', now())")


def test_fractions_of_a_second(db):
    """Strictly later; what is due at a whole second is not missed."""
    assert db.value("SELECT queue._cron_next(queue._cron('* * * * * *'), 'UTC', '2026-01-01 00:00:00.5+00')"
                         " = '2026-01-01 00:00:01+00'")  # fmt: skip
    assert db.value("SELECT queue._cron_next(queue._cron('@daily'), 'UTC', '2025-12-31 23:59:59.999999+00')"
                         " = '2026-01-01 00:00:00+00'")  # fmt: skip
    assert db.value("SELECT queue._cron_next(queue._cron('@daily'), 'UTC', '1850-12-31 23:59:59.999999+00')"
                         " = '1851-01-01 00:00:00+00'")  # fmt: skip


EVERY = [
    ("2026-01-01", "5 min", "2026-01-01 00:00", "2026-01-01 00:05"),
    ("2026-01-01", "5 min", "2026-01-01 00:04:59.999", "2026-01-01 00:05"),
    ("2026-01-01", "5 min", "2025-12-31", "2026-01-01"),
    ("2026-01-31", "1 month", "2026-01-31", "2026-02-28"),
    ("2026-01-31", "1 month", "2026-02-28", "2026-03-31"),
    ("1990-01-31", "1 month", "2026-04-01", "2026-04-30"),
    ("1900-02-28", "1 year", "2026-04-01", "2027-02-28"),
    ("2026-01-01", "1 day", "2026-03-29 12:00", "2026-03-30"),
    ("2000-01-01", "1 ms", "2026-03-29 12:00:00.0005", "2026-03-29 12:00:00.001"),
    ("2026-01-01", "1 week 3 hours", "2026-01-08 03:00", "2026-01-15 06:00"),
]


@pytest.mark.parametrize("start, every, after, due", EVERY)
def test_every(db, start, every, after, due):
    for zone in ("UTC", "Europe/Berlin"):
        with db.conn.transaction():
            db.value("SELECT set_config('TimeZone', %s, true)", zone)
            assert db.row("SELECT queue._every_next(%s::timestamp AT TIME ZONE 'UTC', %s, %s::timestamp AT TIME ZONE 'UTC')"
                               " AT TIME ZONE 'UTC' = %s", start, every, after, due) == (True,)  # fmt: skip


@pytest.mark.parametrize("every", ["0", "-1 min", "1 month -1 day", "9000 years", "0.5 ms"])
def test_every_wrong(db, every):
    assert db.fails("22023", "SELECT queue._every_next(now(), %s, now())", every).message_hint


@pytest.mark.parametrize("zone, change", [
    ("Europe/Berlin", "2026-10-25 01:00+00"), ("Australia/Lord_Howe", "2026-04-04 15:00+00"),
    ("America/Caracas", "2007-12-09 07:00+00"), ("A+12B-11,M3.2.0,M11.1.0", "2026-10-31 15:00+00"),
])  # fmt: skip
def test_what_was_in_the_first_of_two_hours_is_passed_over(db, zone, change):
    """All of it at once, and no more than that: as one that goes there step by step."""
    hours = ",".join(str(hour) for hour in range(24))
    db.rows("""CREATE FUNCTION pg_temp.by_steps(cron int8[], zone text, after timestamptz) RETURNS timestamptz
        LANGUAGE plpgsql AS $$
        DECLARE
            l timestamp := date_trunc('second', after) AT TIME ZONE zone;
        BEGIN
            LOOP
                l := queue._cron_local(cron, l);
                IF queue._instant(zone, l) > after THEN
                    RETURN queue._instant(zone, l);
                END IF;
            END LOOP;
        END $$""")
    for cron in (f"0 */7 {hours} * * *", f"0 0 {hours} * * *", "0 30 1,2 * * *", "0 0 3 * * *"):
        wrong = db.rows("""SELECT t, pg_temp.by_steps(c, z, t), queue._cron_next(c, z, t)
            FROM (SELECT queue._cron(%s), %s::text) AS x (c, z),
                generate_series(%s::timestamptz - interval '220 h', %s::timestamptz + interval '220 h', '59 min') AS t
            WHERE pg_temp.by_steps(c, z, t) IS DISTINCT FROM queue._cron_next(c, z, t)""", cron, zone, change, change)  # fmt: skip
        assert wrong == [], cron
    # a second after it, each second is due: not before the time that was there already is over
    assert db.value("SELECT queue._cron_next(queue._cron(%s), %s, %s::timestamptz + interval '1 s') > %s",
                    f"* * {hours} * * *", zone, change, change)  # fmt: skip
