"""An example or two for every command, which its help ends with. A test parses each of them."""

from __future__ import annotations

import click

__all__ = ["EXAMPLES", "with_examples"]

#: words after `hushgram` → what people type after them
EXAMPLES: dict[str, tuple[str, ...]] = {
    "release": (
        "configs/urls.yaml --check",
        "configs/urls.yaml --date yesterday --set privacy.epsilon=0.5",
        "configs/urls.yaml -- --runner=FlinkRunner --flink_master=host:8081",
    ),
    "sparse-vector": ("configs/alerts.yaml --check", "configs/alerts.yaml"),
    "clip": ("configs/ages.yaml",),
    "answer": ("configs/answer.yaml", "out/answers --key /a --key /b"),
    "randomized-response randomize": ("configs/survey.yaml",),
    "randomized-response ask": ('out/survey --secret smokes --where "age >= 30"',),
    "top": ("configs/top.yaml",),
    "metrics": ("configs/traffic.yaml --date yesterday --check", "configs/traffic.yaml --date yesterday"),
    "query": (
        "out/urls.sketch https://example.org/a https://example.org/b",
        "out/urls.sketch --keys-file pages.txt --format csv -o counts.csv",
    ),
    "total": ("out/urls.sketch --keys-file pages.txt",),
    "heavy": ("out/urls.sketch --limit 50", "out/urls.sketch --keys-file candidates.txt"),
    "inspect": ("out/urls.sketch", "out/urls.sketch --format json"),
    "verify": ("out/urls.sketch",),
    "report": ("out/urls.sketch -o urls.html", "out/urls.sketch --ledger sqlite:///ledger.db"),
    "explore": ("out/monday.sketch out/tuesday.sketch",),
    "ledger init": ("--dataset pageviews --epsilon 10 --delta 1e-6",),
    "ledger show": ("pageviews",),
    "ledger history": ("pageviews --format csv",),
    "ledger abandon": ("urls-2026-11-15",),
    "ledger backup": ("/backup/ledger.db",),
    "ledger recover": ("pageviews",),
    "ledger seal": ("--ledger sqlite:///ledger.db",),
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
    "example": ("urls",),
    "doctor": ("",),
    "demo": ("--rows 300000 --keep demo",),
}


def with_examples(command: click.Command, words: str) -> click.Command:
    """The command, whose help ends with its examples; those of a group, with theirs."""
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            with_examples(part, f"{words} {name}")
    elif words in EXAMPLES:
        lines = "\n".join(f"  hushgram {words} {rest}".rstrip() for rest in EXAMPLES[words])
        command.epilog = f"\b\nFor example:\n{lines}"
    return command
