"""The online learners that the SOLAR paper compares with (section 5.2), one idea a file.

They are here to reproduce its tables, not to be served.
"""
