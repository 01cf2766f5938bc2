"""Run the command line: `python -m rgcn` is `rgcn`."""

from rgcn.cli import main

if __name__ == "__main__":
    main()
