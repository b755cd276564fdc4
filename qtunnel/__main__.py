"""`python -m qtunnel` is the same as `qtunnel`."""

from __future__ import annotations

from qtunnel.cli.main import main

if __name__ == "__main__":
    main()
