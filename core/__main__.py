"""`python -m hushgram` is the `hushgram` command."""

from hushgram.pipelines.cli import run

if __name__ == "__main__":
    run()
