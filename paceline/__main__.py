"""python -m paceline: see paceline.commands."""

try:
    from paceline.commands import main
except KeyboardInterrupt:
    raise SystemExit(130) from None

if __name__ == "__main__":
    raise SystemExit(main())
