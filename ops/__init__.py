"""What those who run SOLAR see: dashboards and alerts, written once, in Python.

`make dashboards` (`python -m ops`) writes them to where Grafana and Prometheus read them.

words.py        Panel, Board, Recorded, Alert: plain values
quality.py      the dashboard *Ranking quality*     service.py      *Service*
pipeline.py     *Learning pipeline*                 rules.py        recording and alert rules
grafana.py      boards → JSON                       prometheus.py   rules → YAML
"""
