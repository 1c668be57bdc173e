"""The commands beside the jobs, with a line of help each, and the examples that the help of every command ends with.

The command `a-name` is `command` of the module ``hushgram.pipelines.commands.a_name``, imported only when it runs.
Jobs (`hushgram.pipelines.jobs`) have the command that `hushgram.pipelines.commands.job` builds, unless they are in
`JOBS_WITH_MODULE`.
"""

from __future__ import annotations

__all__ = ["COMMANDS", "EXAMPLES", "JOBS_WITH_MODULE"]

#: command → its line in `hushgram --help`
COMMANDS = {
    "init": "Write a config for your files, after four questions.",
    "check": "Check configs by a dry run, or offline without data.",
    "query": "Estimate the counts of keys in a sketch.",
    "total": "Estimate the sum over many keys of a sketch.",
    "heavy": "List the heavy keys of a sketch.",
    "others": "Estimate the total of the keys that a sketch does not list.",
    "series": "Estimate keys by date, from one sketch per date.",
    "compare": "Show which keys rose or fell between two sketches.",
    "inspect": "Show the guarantee, sizes and parameters of a sketch.",
    "report": "Write a report about a sketch as an HTML page.",
    "explore": "Explore sketches in a browser on this machine.",
    "verify": "Check the digests of all files of a sketch.",
    "ledger": "Manage the privacy budget across releases.",
    "clean": "List or remove hidden folders that killed runs left behind.",
    "calculate": "Calculate a bound, with its formula, theorem and exact value.",
    "plan": "Choose parameters before reading any data.",
    "example": "Generate synthetic data for the ready-made configs.",
    "doctor": "Check what works on this machine.",
    "demo": "Generate page views, release them, and compare estimates with true counts.",
}
#: jobs whose command does more than run them
JOBS_WITH_MODULE = {"answer", "bounds", "randomized-response"}

#: command → arguments of the examples that its help ends with; a test parses each of them
EXAMPLES: dict[str, tuple[str, ...]] = {
    "release": (
        "configs/urls.yaml --check",
        "configs/urls.yaml --date yesterday --set privacy.epsilon=0.5",
        "configs/urls-daily.yaml --from 2026-11-01 --to 2026-11-15 --check",
        "configs/urls.yaml -- --runner=FlinkRunner --flink_master=host:8081",
    ),
    "sparse-vector": ("configs/alerts.yaml --check", "configs/alerts.yaml"),
    "clip": ("configs/ages.yaml",),
    "answer": ("configs/answer.yaml", "out/answers --key https://example.org/news/0"),
    "randomized-response randomize": ("configs/survey.yaml",),
    "randomized-response ask": ('out/survey --secret smoker --where "age >= 30"',),
    "top": ("configs/top.yaml",),
    "bounds": ("configs/urls.yaml --epsilon 0.05", "configs/urls.yaml --epsilon 0.1 --format json"),
    "metrics": ("configs/traffic.yaml --date yesterday --check", "configs/traffic.yaml --date yesterday"),
    "init": ("data/pageviews/*.parquet", "access.log --yes --user ip --key path --every day --no-names"),
    "check": ("configs/urls.yaml configs/top.yaml --offline", "--schema release"),
    "query": (
        "out/urls.sketch https://example.org/news/0 https://example.org/sport/1",
        "out/urls.sketch --keys-file pages.txt --format csv -o counts.csv",
    ),
    "total": ("out/urls.sketch --keys-file pages.txt", "out/hours.sketch --by 1"),
    "heavy": ("out/urls.sketch --limit 50", "out/urls.sketch --keys-file candidates.txt"),
    "others": ("out/urls.sketch", "out/urls.sketch --limit 20"),
    "series": (
        "'out/urls-{date}.sketch' --keys-file pages.txt",
        "'out/urls-{date}.sketch' --key https://example.org/a --plot series.svg",
    ),
    "compare": (
        "out/urls-2026-11-14.sketch out/urls-2026-11-15.sketch",
        "out/monday.sketch out/tuesday.sketch --keys-file pages.txt --rate 0.1 --all --format csv",
    ),
    "inspect": ("out/urls.sketch", "out/urls.sketch --format json"),
    "verify": ("out/urls.sketch",),
    "report": ("out/urls.sketch -o urls.html", "out/urls.sketch --ledger sqlite:///ledger.db"),
    "explore": ("out/monday.sketch out/tuesday.sketch", "out/urls.sketch --keys-file pages.txt"),
    "ledger init": ("--dataset pageviews --epsilon 10 --delta 1e-6",),
    "ledger show": ("pageviews",),
    "ledger forecast": ("pageviews --every day", 'pageviews --like urls-2026-11-15 --every "2 weeks"'),
    "ledger history": ("pageviews --format csv",),
    "ledger abandon": ("urls-2026-11-15",),
    "ledger backup": ("/backup/ledger.db",),
    "ledger recover": ("pageviews",),
    "ledger add-key": ("--ledger sqlite:///ledger.db",),
    "clean": ("out", "out s3://sketches/urls --older-than 30 --remove"),
    "calculate above-threshold": ("--queries 1000 --epsilon 1",),
    "calculate advanced-composition": ("--epsilon 0.1 --steps 100 --delta 1e-6",),
    "calculate laplace-error": ("--queries 100 --epsilon 0.5 --records 100000",),
    "calculate laplace-histogram": ("--cells 1000 --epsilon 1 --records 100000",),
    "calculate laplace-records": ("--queries 100 --epsilon 0.5 --alpha 0.01",),
    "calculate pmw-records": ("--cells 16 --queries 100 --alpha 0.5 --epsilon 5",),
    "calculate pure-to-zcdp": ("--epsilon 1",),
    "calculate rdp": ("--order 10 --loss 0.5 --delta 1e-6",),
    "calculate sparse": ("--queries 1000 --cutoff 10 --epsilon 1",),
    "calculate zcdp": ("--rho 0.5 --delta 1e-6",),
    "plan": (
        "--records 50M --keys 1e6 --users 1e6",
        "--like out/urls.sketch --epsilon 0.5 --epsilon 1 -o plan.html",
        'urls.yaml --target "error 20 at count 200" --write better.yaml',
    ),
    "example": ("urls", "urls --config --rows 1000000"),
    "doctor": ("",),
    "demo": ("--rows 300000 --keep demo",),
}
