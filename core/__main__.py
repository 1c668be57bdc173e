"""`python -m hushgram` is the `hushgram` command."""

from hushgram.pipelines.cli import main

if __name__ == "__main__":
    main()
