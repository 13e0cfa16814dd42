"""`python -m headway` and the `headway` script."""

from headway.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
