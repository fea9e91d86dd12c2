"""Every known attack on a site's rows, run again by `python -m benchmarks.attacks`.

What computes rows from messages: `differencing`, `questions`, `places`, `server`, `unmixing`, `accomplices`, `lying_site`, `training`.
What they are carried out against: `victim` and `sums` in this process, `federation` with provisioned sites, whose server
`malicious_server` takes over. The cases are in `in_process`, `fillers`, `sums`, `ledger`, `processes` and `lead`; `report` makes the page.
"""
