"""Every known attack on a site's rows, run again by `python -m benchmarks.attacks`.

`differencing` and `questions` compute rows from messages, `places` solves for them. `victim` answers as a site does, in this
process; `federation` starts provisioned sites. `cases` lists the attacks, `report` makes docs/attacks.md of what they found.
"""
