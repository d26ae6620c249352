"""``python -m graphdiag``."""

from graphdiag.cli import main

if __name__ == "__main__":
    main()
