"""The program `octavo`; also `python -m octavo`."""

import os
import sys


def main() -> None:
    """Run the command line and exit with its code; quiet when interrupted or when nobody reads stdout any more."""
    code = 130
    try:
        from octavo.cli.main import run

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # while modules were imported
    except OSError as error:  # a full disk, a folder that is a file; or nobody reads stdout any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains when it flushes at its end
        code = 1
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"octavo: {error}. Check the disk and the permissions.\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
