#!/usr/bin/env python3
"""Opens report pages in headless Chromium and looks at them as readers do.

    check_report.py [--out DIR] [--expect FIGURE,...] PAGE...
    check_report.py --document FILE PAGE    PAGE's template with another document, as DIR/FILE.html
    check_report.py --long-names PAGE       the page with plans whose names are long, as DIR/long-names.html
    check_report.py --self-test             opens a page with every fault and expects to be told of each

Each page is opened at 1280, 1200 and 390 pixels, in light and in dark mode. It fails on: a message in the console or an
exception, anything asked of the network, a page wider than its window, a table that scrolls sideways where there is
room (not on a phone), dropped tokens that nothing explains, a figure that is missing or has no size (a
mark's place that is no number counts), text outside of its picture, a figure without a table, a keyboard that does
not reach a figure's marks. Without script the same page must show its tables. Screenshots go to DIR (default: out/report).

Talks to Chromium over a pipe (its DevTools protocol), so that it needs no package of Python.
"""

import argparse
import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Optional

WIDTHS = {1280: 900, 1200: 900, 390: 844}
SCHEMES = ("light", "dark")
TIMEOUT_S = 60


class Browser:
    """A headless Chromium and the one page that it shows."""

    def __init__(self, program: str, profile: str):
        # The protocol wants to be read on descriptor 3 and written on 4.
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_browser, from_browser)]

        def place_pipes() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--force-device-scale-factor=1", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place_pipes, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in (to_browser, from_browser, *high):
            os.close(fd)
        self._pending = b""
        self._next_id = 0
        self._session: Optional[str] = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium has gone")
            self._pending += chunk
        message, self._pending = self._pending.split(b"\0", 1)
        return json.loads(message)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, script: str) -> Any:
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{result['exceptionDetails'].get('exception', {}).get('description', 'exception')}")
        return result["result"].get("value")

    def open(self, page: Path, width: int, scheme: str, script: bool = True) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=WIDTHS[width], deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait(lambda: any(event.get("method") == "Page.loadEventFired" for event in self.events), "the page to load")
        # Two frames: observers of size have drawn by then.
        if script:
            self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not happened():
            if time.monotonic() > end:
                raise RuntimeError(f"waited {TIMEOUT_S} s for {what}")
            self.call("Runtime.evaluate", expression="0")
            time.sleep(0.02)

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9, "ArrowRight": 39}[key])

    def screenshot(self, path: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(image["data"]))


# What a look at the drawn page finds wrong, as sentences. WIDTH is that of the window: a phone's innerWidth grows with what sticks out.
INSPECT = """(() => {
  const wrong = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > WIDTH) {
    const guilty = [...document.querySelectorAll('body *')].filter((node) => node.getBoundingClientRect().right > WIDTH + 1 && !node.closest('.scroll'));
    wrong.push(`the page is ${wide} pixels wide in a window of ${WIDTH}: ${guilty.slice(0, 3).map((node) => `<${node.tagName} class="${node.getAttribute('class')}">`).join(' ')}`);
  }
  if (WIDTH >= 1000) {
    for (const box of document.querySelectorAll('.scroll')) {
      if (!box.closest('details:not([open])') && box.scrollWidth > box.clientWidth + 1) wrong.push(`a table scrolls sideways: ${box.scrollWidth} pixels in ${box.clientWidth}, ${box.closest('[data-figure]')?.dataset.figure}`);
    }
  }
  if (document.querySelector('.holder .dropped') && !/A dropped token is gone/.test(document.body.innerText)) wrong.push('nothing explains dropped tokens');
  if (document.documentElement.dataset.ready !== 'yes') wrong.push('the script did not reach its end');
  for (const node of document.querySelectorAll('[data-figure]')) {
    const box = node.getBoundingClientRect();
    const name = node.dataset.figure;
    if (box.width < 50 || box.height < 15) wrong.push(`figure ${name} has no size`);
    for (const holder of node.querySelectorAll('.holder')) {
      if (!holder.querySelector('svg')) wrong.push(`figure ${name} was not drawn`);
      else if (!holder.querySelector('.spot[tabindex="0"]')) wrong.push(`figure ${name} has no mark that the keyboard reaches`);
    }
    if (node.querySelector('.holder') && !node.querySelector('table')) wrong.push(`figure ${name} has no table`);
    for (const mark of node.querySelectorAll('.spot, svg[role=img]')) if (!mark.getAttribute('aria-label')) wrong.push(`figure ${name}: a mark without a name`);
  }
  for (const node of document.querySelectorAll('svg *')) {
    for (const { name, value } of node.attributes) if (/NaN|undefined|Infinity/.test(value)) wrong.push(`<${node.tagName} ${name}="${value.slice(0, 60)}">`);
  }
  for (const text of document.querySelectorAll('.holder svg text')) {
    const box = text.getBoundingClientRect();
    const outer = text.closest('.holder').getBoundingClientRect();
    if (box.left < outer.left - 14 || box.right > outer.right + 14) wrong.push(`text "${text.textContent}" leaves its picture`);
  }
  if (/undefined|NaN|\\[object/.test(document.body.innerText)) wrong.push(`text: ${document.body.innerText.match(/.{0,40}(undefined|NaN|\\[object).{0,20}/)[0]}`);
  const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
  if (new Set(ids).size !== ids.length) wrong.push('an id twice');
  return wrong.slice(0, 20);
})()"""

FIGURES = "[...new Set([...document.querySelectorAll('[data-figure]')].map((node) => node.dataset.figure))]"


def inspect(browser: Browser, width: int) -> list[str]:
    return browser.evaluate(INSPECT.replace("WIDTH", str(width)))


def console_messages(events: list[dict[str, Any]]) -> list[str]:
    messages = []
    for event in events:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            messages.append("exception: " + details.get("exception", {}).get("description", details.get("text", "")))
        elif method == "Runtime.consoleAPICalled":
            messages.append(f"console.{parameters['type']}: {[argument.get('value') for argument in parameters['args']]}")
        elif method == "Log.entryAdded":
            messages.append(f"log: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("file:"):
            messages.append(f"asks the network for {parameters['request']['url']}")
    return messages


def check_keyboard(browser: Browser) -> list[str]:
    """Tab reaches the first mark of every figure, where an arrow key goes on to the next."""
    wanted = browser.evaluate("document.querySelectorAll('.holder svg .spot[tabindex=\"0\"]').length")
    reached, moved, problems = set(), 0, []
    total = browser.evaluate("document.querySelectorAll('a, summary, select, [tabindex]').length")
    for _ in range(total + 5):
        browser.key("Tab")
        place = browser.evaluate("""(() => { const at = document.activeElement; if (!at.matches('.spot')) return null;
          return { index: [...document.querySelectorAll('.holder')].indexOf(at.closest('.holder')), label: at.getAttribute('aria-label'), many: at.closest('svg').querySelectorAll('.spot').length,
                   shown: document.getElementById('tip').classList.contains('shown') }; })()""")
        if place is None:
            if len(reached) == wanted:
                break
            continue
        if place["index"] in reached:
            continue
        reached.add(place["index"])
        if not place["shown"]:
            problems.append(f"focus on \"{place['label']}\" does not show what it says")
        if place["many"] > 1 and moved < 3:
            browser.key("ArrowRight")
            moved += 1
            label = browser.evaluate("document.activeElement.getAttribute('aria-label')")
            if label == place["label"]:
                problems.append(f"ArrowRight stays at \"{label}\"")
    if len(reached) != wanted:
        problems.append(f"Tab reaches {len(reached)} of {wanted} figures")
    return problems


def check_page(browser: Browser, page: Path, out: Path, expected: list[str]) -> list[str]:
    problems = []
    for scheme in SCHEMES:
        for width in WIDTHS:
            browser.open(page, width, scheme)
            found = inspect(browser, width)
            missing = [name for name in expected if name not in browser.evaluate(FIGURES)]
            found += [f"figure {name} is missing" for name in missing]
            browser.screenshot(out / f"{page.stem}-{width}-{scheme}.png")
            if scheme == "light" and width == 1280:
                found += check_keyboard(browser)
            # Open everything: folded tables must not widen the page either.
            browser.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
            found += [f"all open: {problem}" for problem in inspect(browser, width) if problem not in found]
            found += console_messages(browser.events)
            problems += [f"{page.name}, {width} px, {scheme}: {problem}" for problem in found]
    browser.open(page, 390, "light", script=False)
    browser.screenshot(out / f"{page.stem}-390-plain.png")
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    tables = browser.evaluate("document.querySelectorAll('table').length")
    if not tables:
        problems.append(f"{page.name}, without script: no tables")
    if browser.evaluate("document.documentElement.scrollWidth > 390"):
        problems.append(f"{page.name}, without script: wider than its window")
    return problems


def swap_document(page: Path, document: Path, out: Path) -> Path:
    """A copy of the page that shows another document."""
    text = page.read_text(encoding="utf-8")
    begin = text.index(">", text.index('id="varve-document"')) + 1
    end = text.index("</script>", begin)
    swapped = out / f"{document.stem}.html"
    content = json.dumps(json.loads(document.read_text(encoding="utf-8"))).replace("<", "\\u003c")
    swapped.write_text(text[:begin] + content + text[end:], encoding="utf-8")
    return swapped


def with_long_names(page: Path, out: Path) -> Path:
    """A copy of the page with plans of many clauses: 150 letters without a blank, then some with."""
    text = page.read_text(encoding="utf-8")
    begin = text.index(">", text.index('id="varve-document"')) + 1
    end = text.index("</script>", begin)
    document = json.loads(text[begin:end])
    clauses = ";".join(f"{layer}-{layer + 1}:age=f16:128/q8_0:512/q4_0r,window=4096,sink=64" for layer in range(0, 6, 2))

    def lengthen(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: lengthen(member, name) for name, member in value.items()}
        if isinstance(value, list):
            return [lengthen(member, key) for member in value]
        is_name = key in ("plan", "plans", "label") and isinstance(value, str) and value != "f16"
        return f"{value},{clauses} evict=h2o,recent=128" if is_name else value

    document = lengthen(document)
    document_file = out / "long-names.json"
    document_file.write_text(json.dumps(document), encoding="utf-8")
    return swap_document(page, document_file, out)


FAULTY = """<!doctype html><meta name="viewport" content="width=device-width"><div style="width:2000px">wide</div>
<div class="scroll" style="width:90px;overflow-x:auto"><div style="width:200px">x</div></div>
<div class="holder"><svg><rect class="dropped spot" tabindex="0" aria-label="x" width="9" height="9"/></svg></div>
<figure data-figure="small" style="width:9px;height:9px"></figure>
<figure data-figure="empty" style="height:90px"><div class="holder"></div></figure>
<figure data-figure="silent" style="height:90px"><div class="holder"><svg><g class="spot" tabindex="-1"><rect x="NaN"/></g></svg></div></figure>
<p id="tip">undefined</p><p id="tip"></p><script>fetch('http://127.0.0.1:9/'); console.log('noise'); throw new Error('broken');</script>"""
# What must be found wrong with it.
FAULTS = ("390 px, dark: the page is 2008 pixels wide", "1200 px, light: a table scrolls sideways: 200 pixels in 90", "nothing explains dropped tokens", "did not reach its end", "small has no size", "empty was not drawn", "silent has no mark", "silent has no table", "a mark without a name",
          'x="NaN"', "text: undefined", "an id twice", "exception: Error: broken", "console.log", "asks the network", "figure absent is missing", "no tables")


def self_test(browser: Browser, out: Path) -> list[str]:
    page = out / "faulty.html"
    page.write_text(FAULTY, encoding="utf-8")
    found = check_page(browser, page, out, ["absent"])
    return [f"self-test: \"{fault}\" was not found" for fault in FAULTS if not any(fault in problem for problem in found)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    parser.add_argument("--out", type=Path, default=Path("out/report"), help="folder of the screenshots")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--document", type=Path, help="JSON to show in place of the page's own")
    parser.add_argument("--long-names", action="store_true", help="the pages with plans whose names are long")
    parser.add_argument("--expect", default="", help="figures that every page must have, separated by commas")
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        print("check_report: chromium is missing (./dev check report installs it)", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    expected = [name for name in options.expect.split(",") if name]
    if options.document:
        options.pages = [swap_document(page, options.document, options.out) for page in options.pages]
    if options.long_names:
        options.pages = [with_long_names(page, options.out) for page in options.pages]
    problems = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            if options.self_test:
                problems += self_test(browser, options.out)
            for page in options.pages:
                problems += check_page(browser, page, options.out, expected)
        finally:
            browser.close()
    for problem in problems:
        print(problem)
    print(f"{len(options.pages)} pages, {len(problems)} problems; screenshots in {options.out}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
