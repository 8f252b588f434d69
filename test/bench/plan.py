"""How much is measured: the presets.

For:     run.py, loads/.
Must not know: what is measured.
Entry points: PLANS, Plan.
"""

from types import SimpleNamespace


class Plan(SimpleNamespace):
    """rounds of `seconds` for each contender. What else there is says its comment below."""

    def but(self, **more):
        """The same with some values changed."""
        return Plan(**{**vars(self), **more})


FULL = Plan(
    name="full", scale=10, limit=3600,
    rounds=5, seconds=4,
    side_rounds=5,                   # of what no goal is about
    select_clients=(1, 16, 100, 1000),
    select_rounds=7,                 # of up to 16 clients, in short turns
    select_side_rounds=3,            # of the others
    tls_clients=(1, 16, 100, 1000), tls_rounds=5,
    connect_rounds=5,
    cancel_rounds=5, bystanders=100, # of a cancel storm: clients whose queries nobody cancels
    big=100000000, big_times=3, big_clients=(1, 4), # bytes of a row
    copy=1000000000, bulk_rounds=3,  # bytes of a COPY
    idle=10000, idle_tls=1000,       # clients that do nothing
    parked=10000, watch=20,          # clients that wait; seconds watched
    count=500,                       # queries of a client, counted by instructions
    job_clients=(1, 10, 100),
    prepared_clients=(1, 4, 16, 100), prepared_rounds=15,
    batches=(10, 100),
    drain=500000,                    # jobs
    outside_clients=(1, 16, 100), outside_drain=50000,
    latency=10, waiters=(1, 100, 10000), latency_rates=(100, 1000, 0),
    queues=1000, warm=30,            # seconds before they are measured
    tenants=10000,                   # queues of which most rest
    finished=1000000,                # jobs finished under a disturbance before it is measured
    hand_finished=100000,            # the same for hand-written SQL, which gets slow
    delayed=10000000, ready=1000000,
    deaths=10,
    events=200000, drains=15,        # of a stream, read by one consumer, so many times
    consumer_turns=24,               # of a stream while somebody is in the way
    soak=180, soak_warm=3, soak_queries=2000, # seconds of each pooler; cycles; queries of each client in one
)

# every subject in the sizes of the full plan, with fewer and shorter rounds
PUBLISH = FULL.but(
    name="publish", limit=2100, rounds=3, seconds=1.5, side_rounds=1,
    select_rounds=8, select_side_rounds=1, tls_clients=(16, 1000), tls_rounds=4, connect_rounds=4, watch=11,
    outside_clients=(16,), outside_drain=20000, latency=4, warm=15, hand_finished=30000, deaths=3, events=100000, consumer_turns=16,
    drains=9, cancel_rounds=3, tenants=1000, prepared_rounds=7, big_times=2, copy=300000000, bulk_rounds=2, soak=30, soak_queries=500)

# does it run?
QUICK = FULL.but(
    name="quick", scale=1, limit=600, rounds=1, seconds=1, side_rounds=1,
    select_clients=(16, 1000), select_rounds=2, prepared_rounds=1, select_side_rounds=1, tls_clients=(16,), tls_rounds=1,
    connect_rounds=1, cancel_rounds=1, bystanders=40, big_times=1, copy=100000000, bulk_rounds=1, soak=0,
    soak_queries=200, idle=1000, idle_tls=200, parked=2000, watch=11, count=100, drain=10000,
    outside_clients=(16,), outside_drain=2000, latency=1, waiters=(1, 100, 2000), queues=100, warm=4,
    finished=20000, hand_finished=10000, delayed=50000, ready=5000, deaths=2,
    events=20000, tenants=100, drains=3, consumer_turns=2)

PLANS = {plan.name: plan for plan in (FULL, PUBLISH, QUICK)}
