"""Judge of the page: headless Chromium opens it, uses every control, and checks what the contract says; screenshots of all
views go to a folder for people to look at. Development only.

    python judge_page.py OUT_DIR [--train URL] [--serve URL] [--chromium PATH]

Without URLs the servers are page_mock.py's. Checked: the ids, the chart's points and label, pause, stop with its question, the
chat with streams, stop and comparison, the key, no request to another host, no fault in the console, no horizontal scrolling at
390 px, a name for every control, a contrast of 4.5 for every text, light and dark."""
import argparse, pathlib, sys

from playwright.sync_api import sync_playwright

import page_mock

CONTRAST = r"""() => {
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1]; };
  const lum = c => { const f = c.slice(0, 3).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : Math.pow((v + .055) / 1.055, 2.4); });
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > .5) return c; } return [255, 255, 255, 1]; };
  const bad = [];
  let seen = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !e.getClientRects().length || e.closest("[hidden]") || e.closest(".hidden")) continue;
    const s = getComputedStyle(e);
    const fore = parse(e.namespaceURI.includes("svg") ? s.fill : s.color), b = back(e);
    const [x, y] = [lum(fore), lum(b)].sort((p, q) => q - p), ratio = (x + .05) / (y + .05);
    seen++;
    if (ratio < 4.5) bad.push(walk.currentNode.textContent.trim().slice(0, 30) + " " + ratio.toFixed(2));
  }
  return {seen, bad};
}"""
NAMES = r"""() => [...document.querySelectorAll("button, select, input, textarea, progress, svg, [role=log]")].filter(e => {
  const label = e.labels && e.labels.length && [...e.labels].some(l => l.textContent.trim());
  return !(label || e.getAttribute("aria-label") || (e.tagName === "BUTTON" && e.textContent.trim()));
}).map(e => e.id || e.outerHTML.slice(0, 60))"""


class Judge:
    def __init__(self, out):
        self.out, self.faults, self.checks = out, [], 0

    def check(self, ok, what):
        self.checks += 1
        if not ok:
            self.faults.append(what)
            print("FAULT", what)

    def look(self, page, name):
        page.wait_for_timeout(300)
        wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        self.check(not wide, f"{name}: scrolls sideways")
        result = page.evaluate(CONTRAST)
        self.check(result["seen"] > 2 and not result["bad"], f"{name}: contrast {result['bad'][:6]}")
        names = page.evaluate(NAMES)
        self.check(not names, f"{name}: controls without a name {names}")
        page.screenshot(path=str(self.out / f"{name}.png"), full_page=True)


def open_page(browser, judge, url, width, height, scheme):
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    host = url.split("/")[2]
    page.on("console", lambda m: judge.check(m.type != "error" or "404" in m.text or "401" in m.text, f"console: {m.text}"))
    page.on("pageerror", lambda e: judge.check(False, f"script: {e}"))
    page.on("request", lambda r: judge.check(r.url.split("/")[2] == host, f"a request to {r.url}"))
    page.goto(url)
    return page


def wait(page, expression):
    """wait_for_function needs eval, which the page's policy forbids."""
    for _ in range(600):
        if page.evaluate("() => " + expression):
            return
        page.wait_for_timeout(100)
    raise TimeoutError(expression)


def say(page, text):
    page.fill("#chat-input", text)
    page.press("#chat-input", "Enter")


def judge_chat(judge, page, name, pair):
    page.wait_for_selector("#chat-model option", state="attached")
    models = page.eval_on_selector_all("#chat-model option", "l => l.map(o => o.value)")
    judge.check(len(models) >= 1, f"{name}: no models")
    if pair and len(models) > 1:
        page.select_option("#chat-model", models[-1])
        page.select_option("#chat-model-2", models[0])
    say(page, "How do I <i>reset</i> my password?")
    page.wait_for_selector("#chat-stop", state="hidden", timeout=60000)
    users = page.locator("#chat-log [data-role=user]").count()
    answers = page.locator("#chat-log [data-role=assistant]").count()
    both = pair and len(models) > 1
    judge.check(users == 1 and answers == (2 if both else 1), f"{name}: {users} and {answers} messages")
    text = page.locator("#chat-log [data-role=assistant] .text").first.inner_text()
    judge.check(len(text) > 0, f"{name}: an empty answer")
    judge.check(page.locator("#chat-log i, #chat-log b").count() == 0, f"{name}: markup of a message")
    judge.look(page, name)


def judge_train(judge, browser, url, key=None):
    for scheme in ("light", "dark"):
        for kind, w, h in (("desktop", 1280, 900), ("phone", 390, 844)):
            page = open_page(browser, judge, url, w, h, scheme)
            page.wait_for_selector("#run:not([hidden])")
            wait(page, "+document.querySelector('#loss-chart').dataset.points > 2")
            judge.look(page, f"train-{kind}-{scheme}")
            if scheme == "dark":
                page.click("#tab-chat")
                judge_chat(judge, page, f"train-chat-{kind}-{scheme}", True)
            page.context.close()
    page = open_page(browser, judge, url, 1280, 900, "light")
    wait(page, "+document.querySelector('#loss-chart').dataset.points > 2")
    before = int(page.get_attribute("#loss-chart", "data-points"))
    wait(page, f"+document.querySelector('#loss-chart').dataset.points > {before}")
    label, step = page.get_attribute("#loss-chart", "aria-label"), page.inner_text("#step")
    judge.check(any(w.strip(",").isdigit() for w in label.split()), f"label of the chart: {label}")
    judge.check(page.inner_text("#state") == "running", "state is not running: " + page.inner_text("#state"))
    judge.check(page.evaluate("document.querySelector('#progress').value") > 0, "no progress")
    judge.check(float(page.inner_text("#loss")) > 0 and step.split()[0].isdigit(), "no loss or step")
    page.click("#pause")
    wait(page, "document.querySelector('#pause').textContent === 'Resume'")
    wait(page, "document.querySelector('#state').textContent === 'paused'")
    page.focus("#pause")
    page.keyboard.press("Enter")
    wait(page, "document.querySelector('#pause').textContent === 'Pause'")
    judge.check(not page.is_visible("#stop-confirm"), "the question of stop is open")
    page.click("#stop")
    judge.check(page.is_visible("#stop-confirm"), "stop does not ask")
    judge.look(page, "train-stop-question")
    page.keyboard.press("Escape")
    judge.check(not page.is_visible("#stop-confirm"), "Escape does not close the question")
    page.hover("#loss-chart", position={"x": 500, "y": 100})
    judge.check(page.is_visible(".plot .tip"), "no values under the pointer")
    page.screenshot(path=str(judge.out / "train-hover.png"))
    page.click("#stop")
    page.click("#stop-confirm")
    wait(page, "['stopping', 'done'].includes(document.querySelector('#state').textContent)")
    page.context.close()


def judge_serve(judge, browser, url, mock):
    for scheme in ("light", "dark"):
        for kind, w, h in (("desktop", 1280, 900), ("phone", 390, 844)):
            page = open_page(browser, judge, url, w, h, scheme)
            page.wait_for_selector("#chat:not([hidden])")
            judge.check(not page.is_visible("#run") and not page.is_visible("#tabs"), "a run without a run")
            if kind == "phone":
                page.click(".sampling summary")
            judge_chat(judge, page, f"serve-{kind}-{scheme}", scheme == "light")
            page.context.close()
    page = open_page(browser, judge, url, 1280, 900, "light")
    page.wait_for_selector("#chat-model option", state="attached")
    if mock:
        say(page, "a long answer please")
        page.wait_for_selector("#chat-stop:not([hidden])")
        page.wait_for_timeout(300)
        page.click("#chat-stop")
        page.wait_for_selector("#chat-stop", state="hidden")
        page.wait_for_timeout(500)
        judge.check(mock.cancelled >= 1, "stop does not end the request")
        judge.check("stopped" in page.inner_text("#chat-log"), "a stopped answer does not say so")
    page.click("#chat-clear")
    judge.check(page.locator("#chat-log [data-role]").count() == 0, "a new chat has messages")
    for _ in range(12):  # by keyboard alone
        page.keyboard.press("Tab")
    judge.check(page.evaluate("document.activeElement !== document.body"), "nothing has the focus")
    page.context.close()


def judge_key(judge, browser, url, key):
    page = open_page(browser, judge, url + "#key=" + key, 390, 844, "light")
    page.wait_for_selector("#chat-model option", state="attached")
    judge.check("key" not in page.url, "the key stays in the address")
    judge.check(not page.is_visible("#key-dialog"), "asks though it has a key")
    page.context.close()
    page = open_page(browser, judge, url, 390, 844, "dark")
    page.wait_for_selector("#key-dialog[open]")
    judge.look(page, "key-question")
    page.fill("#key-input", key)
    page.keyboard.press("Enter")
    page.wait_for_selector("#chat-model option", state="attached")
    judge.check(not page.is_visible("#key-dialog"), "asks again with a good key")
    page.context.close()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("out")
    a.add_argument("--train")
    a.add_argument("--serve")
    a.add_argument("--chromium", default="/usr/bin/chromium")
    o = a.parse_args()
    out = pathlib.Path(o.out)
    out.mkdir(parents=True, exist_ok=True)
    judge = Judge(out)
    own = not o.train and not o.serve
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=o.chromium, args=["--no-sandbox"])
        if own:
            train, serve, locked = page_mock.serve(0), page_mock.serve(0, False), page_mock.serve(0, False, "secret")
            where = lambda s: f"http://127.0.0.1:{s.server_address[1]}/"
            judge_serve(judge, browser, where(serve), serve)
            judge_key(judge, browser, where(locked), "secret")
            judge_train(judge, browser, where(train))
        if o.serve:
            judge_serve(judge, browser, o.serve, None)
        if o.train:
            judge_train(judge, browser, o.train)
        browser.close()
    print(f"{judge.checks} checks, {len(judge.faults)} faults")
    return 1 if judge.faults else 0


if __name__ == "__main__":
    sys.exit(main())
