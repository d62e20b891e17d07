"""Dashboards and alerts for the operators of SOLAR, defined in Python.

`make dashboards` (`python -m ops`) writes the files that Grafana and Prometheus read.

words.py        Panel, Board, RecordingRule, Alert: plain values
quality.py      dashboard *Ranking quality*         service.py      dashboard *Service*
pipeline.py     dashboard *Learning pipeline*       rules.py        recording and alert rules
grafana.py      boards → JSON                       prometheus.py   rules → YAML
"""
