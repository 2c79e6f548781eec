"""``python -m toolverdict.collector``: the command ``collect`` without the umbrella."""

from toolverdict.collector.cli import app

if __name__ == "__main__":
    app()
