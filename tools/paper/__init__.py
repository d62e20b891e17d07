"""`make paper DATA=FOLDER`: the tables and figures of the three papers, published and measured.

The page `docs/paper.md` and its figures are written from judged data in FOLDER, which never enters
the repository. What FOLDER lacks is listed as not run.
"""
