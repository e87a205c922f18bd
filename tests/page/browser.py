"""A headless Chromium, driven through a pipe by its DevTools protocol. Standard library only."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """The browser's program, or None."""
    named = os.environ.get("QRAE_CHROMIUM")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One tab. `seen` collects what must stay clean: requests, and what the console was told."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="qrae-page-")
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()
        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--no-sandbox",
                 "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                 "--disable-extensions", f"--user-data-dir={self.folder}", "about:blank"]

        def hand_over():  # the browser reads from 3 and writes to 4
            high_in, high_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        self.process = subprocess.Popen([program, *flags], preexec_fn=hand_over, close_fds=False, start_new_session=True,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.session = b"", 0, None
        self.requests, self.complaints = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 120
        while True:
            answer = self._read(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self, end):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.into], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            self.buffer += os.read(self.into, 1 << 20)
        one, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(one)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(params["args"]))

    def js(self, expression):
        """The value of an expression, or of what it promises."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, what, expression, seconds=180):
        """Until the expression is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.js(expression):
                    return
            except RuntimeError:
                pass  # the page is being exchanged
            time.sleep(0.05)
        raise AssertionError(f"{what}: not after {seconds} s\n{self.js('document.body.innerText')}")

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"{url} is there", f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'", 60)

    def click(self, selector):
        """A real click, on the middle of what the selector finds."""
        place = self.js(f"""(() => {{ const node = document.querySelector({json.dumps(selector)});
            node.scrollIntoView({{block: 'center'}}); const b = node.getBoundingClientRect();
            return [b.x + b.width / 2, b.y + b.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def key(self, key, modifiers=0):
        """Presses a key; modifiers: 2 is Ctrl, 8 is Shift."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "End": 35, "Home": 36}
        text = key if len(key) == 1 and not modifiers & 2 else ("\r" if key == "Enter" and not modifiers else None)
        down = {"key": key, "code": key, "modifiers": modifiers, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        self.call("Input.dispatchKeyEvent", type="keyDown", **down, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **down)

    def write(self, selector, text):
        """Puts a text into a field, as typing or pasting does."""
        self.js(f"(() => {{ const n = document.querySelector({json.dumps(selector)}); n.focus(); n.select(); }})()")
        self.call("Input.insertText", text=text)

    def choose(self, selector, value):
        self.js(f"""(() => {{ const n = document.querySelector({json.dumps(selector)}); n.value = {json.dumps(str(value))};
            n.dispatchEvent(new Event('input', {{bubbles: true}})); n.dispatchEvent(new Event('change', {{bubbles: true}})); }})()""")

    def size(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
