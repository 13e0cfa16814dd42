"""Take the pictures of the page in docs/: a run while it goes on, and when it has ended.

    python tools/page_pictures.py examples/jobs.toml

Runs the list for real with a profile store of its own, twice: the second time its jobs are known.
Needs Chromium and Playwright.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SIZE = {"width": 1280, "height": 1000}
LIVE_AFTER_S = 25.0
HEADWAY = [sys.executable, "-m", "headway"]


def main(jobs: Path) -> None:
    """Run, look, and look again."""
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "XDG_STATE_HOME": f"{place}/state"}
        subprocess.run(
            [*HEADWAY, "run", jobs, "--out", f"{place}/before", "-q"], env=environment, check=True
        )
        subprocess.run(
            [*HEADWAY, "run", jobs, "--out", f"{place}/sweep-1", "--detach"],
            env=environment,
            check=True,
        )
        serving = subprocess.Popen(
            [*HEADWAY, "serve", f"{place}/sweep-1", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert serving.stdout is not None
        address = json.loads(serving.stdout.readline())["address"]
        try:
            with sync_playwright() as started:
                browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                page = browser.new_page(viewport=SIZE)
                page.goto(address)
                page.wait_for_selector("#jobs")
                time.sleep(LIVE_AFTER_S)
                page.locator("#jobs summary").first.click()
                page.screenshot(path="docs/serve-live.png", full_page=True)
                while page.title().endswith("running"):
                    time.sleep(1)
                page.screenshot(path="docs/serve-ended.png", full_page=True)
                browser.close()
        finally:
            serving.send_signal(signal.SIGINT)
            serving.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
