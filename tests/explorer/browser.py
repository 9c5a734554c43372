"""A headless Chromium, driven over a pipe by the DevTools protocol: as much of it as the tests of pages need."""

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

INSTALLED = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BUNDLED = Path(sys.prefix) / "chromium"
LONGEST = 20  # seconds until a wait has failed


class Gone(Exception):
    """The browser ended, or said nothing any more."""


def find():
    """The command of a browser with the environment that it needs, or None."""
    if (BUNDLED / "chromium").exists():
        own = {"LD_LIBRARY_PATH": str(BUNDLED / "lib"), "FONTCONFIG_FILE": str(BUNDLED / "fonts.conf")}
        return str(BUNDLED / "chromium"), {**os.environ, **own}
    found = next(filter(None, map(shutil.which, INSTALLED)), None)
    return found and (found, dict(os.environ))


class Browser:
    """One page of a browser. ``complaints`` are the errors and warnings that it said on its console."""

    def __init__(self, profile):
        command, environment = find()
        to_browser, self._write = os.pipe()
        read, from_browser = os.pipe()
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--no-zygote", "--remote-debugging-pipe")
        # The protocol is spoken on the descriptors 3 and 4, which either pipe may have been given itself.
        heard, said = (fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (to_browser, from_browser))
        silence = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
        self._process = os.posix_spawn(
            command,
            [command, *options, f"--user-data-dir={profile}"],
            environment,
            file_actions=[*silence, (os.POSIX_SPAWN_DUP2, heard, 3), (os.POSIX_SPAWN_DUP2, said, 4)],
        )
        for each in (to_browser, from_browser, heard, said):
            os.close(each)
        self._read = os.fdopen(read, "rb")
        self._number = 0
        self._session = None
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def close(self):
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._write)
        self._read.close()

    def call(self, method, **parameters):
        """The result of a call of the protocol; what the page complains of meanwhile is kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Gone(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._listen(answer)

    def _next(self):
        text = bytearray()
        while (byte := self._read.read(1)) != b"\0":
            if not byte:
                raise Gone("the browser ended")
            text += byte
        return json.loads(text)

    def _listen(self, event):
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(event["params"]["exceptionDetails"])
            case "Log.entryAdded":
                self.complaints.append(event["params"]["entry"])
            case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning", "assert"):
                self.complaints.append(event["params"])

    def run(self, script):
        """The value of a JavaScript expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    def wait(self, script):
        """Wait until JavaScript takes the value of ``script`` for true; that value."""
        end = time.monotonic() + LONGEST
        while not (found := self.run(f"(async (value) => (await value) ? [await value] : null)({script})")):
            assert time.monotonic() < end, f"never true: {script}; {self.complaints}"
        return found[0]

    def size(self, width, height, theme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path, fragment=""):
        """Open the file in a fresh document, and wait until the page has drawn itself."""
        self.complaints.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"file://{path}{fragment and '#' + fragment}")
        self.wait("performance.getEntriesByName('opened').length")

    def click(self, selector):
        """Click with the mouse on the first element that ``selector`` finds."""
        place = self.wait(
            f"(async () => {{ const found = document.querySelector({json.dumps(selector)}); if (!found) return null;"
            "found.scrollIntoView({block: 'nearest'}); await new Promise(requestAnimationFrame);"
            "const box = found.getBoundingClientRect();"
            "return [box.x + Math.min(box.width, 200) / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            x, y = place
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, *keys):
        """Press keys, each a character or a name such as 'Enter'."""
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def texts(self, selector):
        """The text of all elements that ``selector`` finds."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)")
