"""Dashboards and alerts for the operators of SOLAR, defined in Python.

`make dashboards` (`python -m ops`) writes the files that Grafana and Prometheus read.

words.py        Panel, Board, RecordingRule, Alert: plain values
overview.py     first row of every dashboard        quality.py      dashboard *Ranking quality*
service.py      dashboard *Service*                 pipeline.py     dashboard *Learning pipeline*
windows.py      PromQL of means in a window         recorded.py     recording rules
model_rows.py   rows of *Ranking quality*           rules.py        alerts
duel_rows.py    its rows of duels and followers
grafana.py      boards → JSON                       prometheus.py   rules → YAML
"""
