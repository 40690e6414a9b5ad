"""What a user did wrong, said in one line.

Only bad input is an exception. A run that proves nothing is an answer, so it is data: a reason in a verdict
whose status is INCONCLUSIVE (`edge0verify.records.verdict`).
"""

from __future__ import annotations


class InputError(ValueError):
    """Usage or input is wrong; the command line prints the message and exits with 2.

    The message is one line that names the file or tensor, what was expected and what was found.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))
