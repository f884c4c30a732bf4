"""python -m paceline: see paceline.commands."""

from paceline.commands import main

if __name__ == "__main__":
    raise SystemExit(main())
