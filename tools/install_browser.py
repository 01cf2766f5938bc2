"""Install the browser for the tests of the explorer page, if possible.

    python tools/install_browser.py            # before the tests: installs only where CI=true, never fails
    python tools/install_browser.py --always   # `make browser`: installs everywhere; exit code 1 if that fails

It prints nothing if chromium and chromedriver are installed already. It uses Debian's apt-get and must run as root.
Without a browser, its tests are skipped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time

PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver"}  # each with Debian's package that brings it
SECONDS = 420  # for everything; a mirror that does not answer must not hold up a build
APT_OPTIONS = ["-q", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=1", "-o", "DPkg::Lock::Timeout=60"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--always", action="store_true", help="install wherever it is possible, not in CI alone")
    always = parser.parse_args().always
    if not missing():
        return 0
    why_not = obstacle(always) or install()
    if why_not and missing():
        print(f"Browser tests will be skipped: {' and '.join(missing())} not found, and {why_not}.", file=sys.stderr)
    return int(always and bool(missing()))


def missing() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program) is None]


def obstacle(always: bool) -> str | None:
    """Return why nothing can or may be installed here, or None."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get here to install them with; install Chromium and its driver by hand"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "only root may install them: sudo apt-get install chromium chromium-driver"
    if not always and os.environ.get("CI", "").lower() not in ("true", "1"):
        return "nothing is installed unasked outside CI: `make browser` does it"
    return None


def install() -> str | None:
    """Install both packages; return an error message or None."""
    print("Installing chromium for the browser tests ...", file=sys.stderr, flush=True)
    until = time.monotonic() + SECONDS
    # The update may fail for some sources only, so its result is ignored and the installation decides.
    apt_get(["update"], until)
    return apt_get(["install", "-y", "--no-install-recommends", *PROGRAMS.values()], until)


def apt_get(command: list[str], until: float) -> str | None:
    """Run one apt-get command; return an error message or None."""
    try:
        done = subprocess.run(
            ["apt-get", *APT_OPTIONS, *command],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=max(1.0, until - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        return f"apt-get {command[0]} took longer than {SECONDS} s"
    except OSError as error:
        return f"apt-get could not be run: {error}"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return f"apt-get {command[0]} failed: {lines[-1] if lines else f'exit code {done.returncode}'}"


if __name__ == "__main__":
    sys.exit(main())
