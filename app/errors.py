"""Every error that crosses a wall of this house.

SolarError
└── BadData         a file that was offered as judged data is not

The core (`app/ranking`) raises ValueError for arguments that cannot be: `parameter: expected ...,
got ...`.
"""


class SolarError(Exception):
    """Something went wrong that its reader can understand and mend."""


class BadData(SolarError):
    """A line of a data file is not what it should be; the message says where and what."""
