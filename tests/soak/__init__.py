"""`make soak`: mixed traffic on a real service for hours, with churn and faults.

plan.py           how long, which faults when, the request rates
run.py            one run: start, traffic, churn, faults, checks, report
service.py        `solar serve` and its processes by role
traffic.py        paced rankings, feedback and beacons; every answer is checked
users.py          the bodies of requests, and what users click on
calls.py          the HTTP client: statuses and latencies by minute
churn.py          operators: models, warm starts, rollbacks, followers, duels
faults.py         killed processes, clock steps, a full disk
rollbacks.py      losses that the service has found itself
disk.py           a library that makes the disk of a data directory full
announcements.py  what was done when, and whether it disturbs the service
ledger.py         acknowledged events against the records of the logs
audit.py          reads the logs; compares the models with replays
keyspace.py       the keys of the store belong to what exists
logs.py           errors in the log of the service
samples.py        memory, descriptors and threads of each process
restarts.py       processes that ended outside of faults
drift.py          growth and latency drift, against their goals
report.py         the report: a table
picture.py        the report: a picture
"""
