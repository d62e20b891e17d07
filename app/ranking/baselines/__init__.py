"""The online learners that the SOLAR paper compares with (section 5.2), one per module.

They reproduce the paper's tables; the service does not use them. The paper's batch learners are in
`app/ranking/batch`.
"""
