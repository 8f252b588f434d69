"""Those who are compared: each file says how one of them pushes, takes and finishes a job.

sql.py       Sql: what all have in common whose clients send SQL
qbouncer.py  hand.py  pgmq.py         statements, through a pooler or directly
outside.py   Outside: what has its own programs
pgq.py  node.py  marks.py             PgQ; graphile-worker and pg-boss; beanstalkd, Redis, NATS, RabbitMQ
"""

# about 150 bytes of JSON, the same for all
PAYLOAD = ('{"to": "someone@example.org", "subject": "Your order has been shipped", '
           '"order": 471100815, "lang": "en", "text": "%s"}' % ("x" * 36))
