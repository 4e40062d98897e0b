/* app.js - the page of a server: a run while it trains, and a chat. No library, no request to another host; answers
 * are put into the page as text, never as markup. */
"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const svgNs = "http://www.w3.org/2000/svg";

  /* ---- the server ---- */

  const keyName = "afinar-key";
  let key = "";
  function takeKey() {
    const found = /(?:^#|&)key=([^&]*)/.exec(location.hash);
    if (found) {
      sessionStorage.setItem(keyName, decodeURIComponent(found[1]));
      history.replaceState(null, "", location.pathname + location.search); /* not in the address bar */
    }
    key = sessionStorage.getItem(keyName) || "";
  }

  let asking = null;
  function askKey() {
    asking = asking || new Promise(resolve => {
      const dialog = $("key-dialog");
      dialog.showModal();
      $("key-input").focus();
      dialog.onclose = () => {
        key = $("key-input").value.trim();
        sessionStorage.setItem(keyName, key);
        asking = null;
        resolve();
      };
    });
    return asking;
  }

  /* A request with the key; asks for one and tries again when it is refused. */
  async function ask(path, options = {}) {
    for (;;) {
      const used = key;
      const headers = Object.assign({}, options.headers, used ? {Authorization: "Bearer " + used} : {});
      const answer = await fetch(path, Object.assign({cache: "no-store"}, options, {headers}));
      if (answer.status !== 401) return answer;
      if (key === used) await askKey();
    }
  }

  async function faultOf(answer) {
    const text = await answer.text();
    try {
      return JSON.parse(text).error.message;
    } catch (e) {
      return "status " + answer.status + (text ? ": " + text.slice(0, 200) : "");
    }
  }

  function notice(text) {
    $("notice").textContent = text || "";
    $("notice").hidden = !text;
  }

  /* The data of server-sent events, one object each. */
  async function events(answer, take) {
    const reader = answer.body.getReader(), decoder = new TextDecoder();
    let held = "";
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      held += decoder.decode(value, {stream: true});
      const lines = held.split(/\r?\n/);
      held = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        take(JSON.parse(data));
      }
    }
  }

  const wait = ms => new Promise(resolve => setTimeout(resolve, ms));

  /* ---- numbers ---- */

  const isNumber = x => typeof x === "number" && isFinite(x);
  function short(x) {
    if (!isNumber(x)) return "–";
    const size = Math.abs(x);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return x.toExponential(2).replace(/\.?0*e\+?/, "e");
    return String(+x.toPrecision(size >= 100 ? 5 : 4));
  }
  function bytes(n) {
    if (!isNumber(n)) return "–";
    const unit = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    for (; n >= 1024 && i < 4; i++) n /= 1024;
    return (i < 3 ? Math.round(n) : n.toFixed(1)) + " " + unit[i];
  }
  function time(s) {
    if (!isNumber(s) || s < 0) return "–";
    s = Math.round(s);
    const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
    return h ? h + " h " + m + " min" : m ? m + " min " + (s % 60) + " s" : s + " s";
  }

  /* ---- charts ---- */

  const put = (parent, name, attributes, text) => {
    const e = document.createElementNS(svgNs, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    parent.appendChild(e);
    return e;
  };

  /* Round values between two bounds, about n of them. */
  function ticks(low, high, n) {
    const raw = (high - low) / n || 1, power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw) || raw;
    const out = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
    return out;
  }

  /* At most n points: of each group the first and its extremes, in order. */
  function thin(points, n) {
    if (points.length <= n) return points;
    const size = Math.ceil(points.length / (n / 2)), out = [];
    for (let i = 0; i < points.length; i += size) {
      let low = i, high = i;
      for (let k = i; k < Math.min(i + size, points.length); k++) {
        if (points[k][1] < points[low][1]) low = k;
        if (points[k][1] > points[high][1]) high = k;
      }
      out.push(points[Math.min(low, high)]);
      if (low !== high) out.push(points[Math.max(low, high)]);
    }
    return out;
  }

  /* The mean of the neighbours on both sides, so that the line does not lag. */
  function smooth(points) {
    const half = Math.min(50, Math.max(2, Math.floor(points.length / 40)));
    const sum = [0];
    for (const p of points) sum.push(sum[sum.length - 1] + p[1]);
    return points.map((p, i) => {
      const from = Math.max(0, i - half), to = Math.min(points.length, i + half + 1);
      return [p[0], (sum[to] - sum[from]) / (to - from)];
    });
  }

  const path = (points, x, y) => points.map((p, i) => (i ? "L" : "M") + x(p[0]).toFixed(1) + " " + y(p[1]).toFixed(1)).join("");

  function Chart(id, name, options = {}) {
    const svg = $(id), tip = svg.parentNode.querySelector(".tip");
    const self = {main: [], extra: []};
    let x, y, frame = 0, cross = null;
    const left = 56, right = 12, top = 8, bottom = 24;

    function bounds(all) {
      let low = Infinity, high = -Infinity;
      const sorted = all.map(p => p[1]).sort((a, b) => a - b);
      for (const v of sorted) { low = Math.min(low, v); high = Math.max(high, v); }
      if (options.fromZero) low = Math.min(0, low);
      if (high - low < Math.abs(high) * 1e-6) { low -= Math.abs(low) * .05 + 1e-9; high += Math.abs(high) * .05 + 1e-9; }
      return [low, high + (high - low) * .04];
    }

    function draw() {
      frame = 0;
      const w = svg.clientWidth || 600, h = svg.clientHeight || 200, all = self.main.concat(self.extra);
      svg.setAttribute("viewBox", "0 0 " + w + " " + h);
      svg.replaceChildren();
      cross = null;
      const drawn = thin(self.main, 1200);
      svg.dataset.points = drawn.length;
      const last = self.main[self.main.length - 1];
      svg.setAttribute("aria-label", last ? name + ": " + short(last[1]) + " at step " + last[0] + ", " + self.main.length + " points" +
        (self.extra.length ? "; evaluation " + short(self.extra[self.extra.length - 1][1]) : "") : name + ": no points yet");
      if (!all.length) {
        put(svg, "text", {x: w / 2, y: h / 2, "text-anchor": "middle"}, "waiting for the first step");
        return;
      }
      const steps = all.map(p => p[0]), first = Math.min(...[steps[0], self.main.length ? self.main[0][0] : steps[0]]);
      const end = Math.max(steps[steps.length - 1], last ? last[0] : 0, first + 1);
      const [low, high] = bounds(all);
      x = s => left + (s - first) / (end - first) * (w - left - right);
      y = v => top + (high - v) / (high - low) * (h - top - bottom);
      for (const v of ticks(low, high, h > 220 ? 5 : 3)) {
        put(svg, "line", {class: "grid", x1: left, x2: w - right, y1: y(v), y2: y(v)});
        put(svg, "text", {x: left - 8, y: y(v) + 4, "text-anchor": "end"}, short(v));
      }
      for (const s of ticks(first, end, w > 500 ? 8 : 4))
        if (s === Math.round(s)) put(svg, "text", {x: Math.min(x(s), w - right - 12), y: h - 6, "text-anchor": "middle"}, s);
      if (options.smooth && drawn.length > 20) {
        put(svg, "path", {class: "raw", d: path(drawn, x, y)});
        put(svg, "path", {class: "line", d: path(thin(smooth(self.main), 1200), x, y)});
      } else {
        put(svg, "path", {class: "line", d: path(drawn, x, y)});
        if (drawn.length < 3) for (const p of drawn) put(svg, "circle", {class: "point", cx: x(p[0]), cy: y(p[1]), r: 3});
      }
      if (self.extra.length) {
        put(svg, "path", {class: "eval", d: path(self.extra, x, y)});
        for (const p of thin(self.extra, 200)) put(svg, "circle", {class: "dot", cx: x(p[0]), cy: y(p[1]), r: 3});
      }
    }

    svg.addEventListener("pointermove", e => {
      if (!self.main.length || !x) return;
      const at = e.clientX - svg.getBoundingClientRect().left;
      let best = self.main[0];
      for (const p of self.main) if (Math.abs(x(p[0]) - at) < Math.abs(x(best[0]) - at)) best = p;
      if (cross) cross.remove();
      cross = put(svg, "line", {class: "cross", x1: x(best[0]), x2: x(best[0]), y1: top, y2: svg.clientHeight - bottom});
      const near = self.extra.find(p => p[0] === best[0]);
      tip.textContent = "step " + best[0] + "  " + short(best[1]) + (near ? "  evaluation " + short(near[1]) : "");
      tip.hidden = false;
      const width = tip.offsetWidth;
      tip.style.left = Math.max(0, Math.min(x(best[0]) + 10, svg.clientWidth - width)) + "px";
    });
    svg.addEventListener("pointerleave", () => {
      if (cross) cross.remove();
      cross = null;
      tip.hidden = true;
    });
    self.draw = () => { frame = frame || requestAnimationFrame(draw); };
    new ResizeObserver(self.draw).observe(svg);
    return self;
  }

  /* ---- the run ---- */

  const run = {there: false, state: "", last: {}, lastStep: -1, rows: new Set()};
  let lossChart, rateChart, speedChart;

  function showState(r) {
    if (!r) return;
    const ended = r.state === "done" || r.state === "failed";
    if (run.state !== r.state) {
      $("state").textContent = r.state;
      $("state").dataset.state = r.state;
    }
    run.state = r.state;
    $("pause").textContent = r.state === "paused" ? "Resume" : "Pause";
    for (const id of ["pause", "checkpoint", "stop"]) $(id).disabled = ended || r.state === "stopping";
    if (ended || r.state === "stopping") openStop(false);
    if (isNumber(r.step)) {
      $("step").textContent = r.step + (r.max_steps ? " of " + r.max_steps : "");
      $("progress").value = r.max_steps ? r.step / r.max_steps : 0;
      document.title = (r.max_steps ? Math.floor(100 * r.step / r.max_steps) + " % – " : "") + "afinar";
    }
    if (isNumber(r.loss)) $("loss").textContent = r.loss.toFixed(4);
    $("eta").textContent = ended ? "–" : time(r.eta_s);
    if (isNumber(r.tok_s)) $("tok-s").textContent = Math.round(r.tok_s).toLocaleString("en");
    if (isNumber(r.learning_rate)) $("learning-rate").textContent = short(r.learning_rate);
    if (isNumber(r.memory_bytes)) $("memory").textContent = bytes(r.memory_bytes);
    if (isNumber(r.epoch)) $("epoch").textContent = r.epoch.toFixed(2);
    if (r.output_dir) $("output-dir").textContent = r.output_dir;
  }

  function addRow(row) {
    if (!row || !isNumber(row.step)) return;
    const name = row.step + (isNumber(row.eval_loss) ? "e" : "");
    if (run.rows.has(name)) return;
    run.rows.add(name);
    run.lastStep = Math.max(run.lastStep, row.step);
    if (isNumber(row.eval_loss)) {
      lossChart.extra.push([row.step, row.eval_loss]);
      $("eval-loss").textContent = row.eval_loss.toFixed(4);
    }
    if (isNumber(row.loss)) lossChart.main.push([row.step, row.loss]);
    if (isNumber(row.learning_rate) && isNumber(row.loss)) rateChart.main.push([row.step, row.learning_rate]);
    if (isNumber(row.tok_s) && isNumber(row.loss)) speedChart.main.push([row.step, row.tok_s]);
  }

  function drawRun() {
    const order = (a, b) => a[0] - b[0];
    for (const c of [lossChart, rateChart, speedChart]) {
      c.main.sort(order);
      c.extra.sort(order);
      c.draw();
    }
  }

  async function readMetrics() {
    const answer = await ask("v1/run/metrics?since=" + run.lastStep);
    if (!answer.ok) return;
    for (const line of (await answer.text()).split("\n")) {
      if (!line.trim()) continue;
      try { addRow(JSON.parse(line)); } catch (e) { /* a line that is still being written */ }
    }
    drawRun();
  }

  async function readRun() {
    const answer = await ask("v1/run");
    if (!answer.ok) return null;
    run.last = await answer.json();
    showState(run.last);
    return run.last;
  }

  /* A run that ends takes its server with it. */
  function lost() {
    const ended = run.state === "done" || run.state === "failed" || run.state === "stopping";
    if (ended && run.state !== "stopping") return;
    $("state").textContent = ended ? "stopped" : "not reachable";
    $("state").dataset.state = ended ? "done" : "offline";
    if (!ended) run.state = "";
  }

  /* Rows as they are logged; after a lost connection, what was missed comes from the metrics. */
  async function followRun() {
    for (let pause = 500;; pause = Math.min(pause * 2, 8000)) {
      try {
        await readRun();
        await readMetrics();
        readExtras();
        const answer = await ask("v1/run/events");
        if (answer.ok && answer.body) {
          notice("");
          await events(answer, row => {
            pause = 500;
            addRow(row);
            drawRun();
            if (isNumber(row.loss)) showState(Object.assign({}, run.last, row, {state: run.state}));
          });
        }
        const r = await readRun();
        if (r && (r.state === "done" || r.state === "failed")) pause = 8000;
      } catch (e) {
        lost();
      }
      await wait(pause);
    }
  }

  async function control(what, button) {
    button.disabled = true;
    try {
      const answer = await ask("v1/run/" + what, {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"});
      if (!answer.ok) {
        notice(await faultOf(answer));
        button.disabled = false;
        return;
      }
      notice("");
      button.disabled = false;
      showState(await answer.json());
    } catch (e) {
      button.disabled = false;
      notice("The server does not answer.");
    }
  }

  function openStop(open) {
    $("stop-ask").hidden = !open;
    $("stop").setAttribute("aria-expanded", String(open));
  }

  /* Samples and records, where the server has them. */
  let extrasAt = -1;
  async function readExtras() {
    if (extrasAt === run.lastStep) return;
    const first = extrasAt < 0;
    extrasAt = run.lastStep;
    try {
      const answer = await ask("v1/run/samples");
      if (answer.ok) showSamples((await answer.json()).samples || []);
    } catch (e) { /* shown when the server is back */ }
    if (!first) return;
    try {
      const answer = await ask("v1/run/data");
      if (answer.ok) await showData(((await answer.json()).records || []).slice(0, 5));
    } catch (e) { /* the same */ }
  }

  const element = (name, cls, text) => {
    const e = document.createElement(name);
    if (cls) e.className = cls;
    if (text !== undefined) e.textContent = text;
    return e;
  };

  function showSamples(list) {
    $("samples-card").hidden = !list.length;
    $("samples").replaceChildren(...list.slice(-12).reverse().map(s => {
      const item = element("div", "item");
      item.append(element("h3", "", "Step " + s.step), element("div", "text", s.prompt || ""), element("div", "text", s.answer || ""));
      return item;
    }));
  }

  /* A record's text with what counts in the loss marked: runs of tokens with and without labels. */
  async function showData(records) {
    $("data-card").hidden = !records.length;
    for (const r of records) {
      const item = element("div", "item"), text = element("div", "text");
      item.append(element("h3", "", "Record " + r.record), text);
      text.tabIndex = 0;
      $("data-preview").append(item);
      if (!r.ids || !r.labels) {
        text.textContent = r.text || r.prompt_text || "";
        for (const side of ["chosen", "rejected"])
          if (r[side]) item.append(element("h3", "", side), element("div", "text", r[side].text || ""));
        continue;
      }
      for (let i = 0; i < r.ids.length;) {
        const counts = r.labels[i] !== -100;
        let end = i;
        while (end < r.ids.length && (r.labels[end] !== -100) === counts) end++;
        const answer = await ask("detokenize", {method: "POST", headers: {"Content-Type": "application/json"},
          body: JSON.stringify({tokens: r.ids.slice(i, end)})});
        const part = answer.ok ? (await answer.json()).content : "";
        text.append(counts ? element("mark", "", part) : document.createTextNode(part));
        i = end;
      }
    }
  }

  /* ---- chat ---- */

  const chat = {turns: [], busy: null, sides: [[], []]};

  async function readModels() {
    const answer = await ask("v1/models");
    if (!answer.ok) {
      notice(await faultOf(answer));
      return;
    }
    const names = (await answer.json()).data.map(m => m.id);
    const fill = (select, extra) => {
      const chosen = select.value;
      select.replaceChildren(...extra, ...names.map(n => new Option(n, n)));
      if ([...select.options].some(o => o.value === chosen)) select.value = chosen;
    };
    fill($("chat-model"), []);
    fill($("chat-model-2"), [new Option("nothing", "")]);
    $("title").textContent = names[0] || "";
    const current = names.find(n => n.endsWith(":current"));
    if (run.there && current && !chat.turns.length) {
      $("chat-model").value = current;
      $("chat-model-2").value = names[0];
    }
  }

  function value(id) {
    const v = $(id).value.trim();
    return v === "" || isNaN(+v) ? undefined : +v;
  }

  function request(model, messages) {
    const system = $("s-system").value.trim();
    const body = {
      model, stream: true, stream_options: {include_usage: true}, reasoning_format: "none",
      messages: (system ? [{role: "system", content: system}] : []).concat(messages),
      temperature: value("s-temperature"), top_p: value("s-top-p"), top_k: value("s-top-k"), min_p: value("s-min-p"),
      repeat_penalty: value("s-repeat"), max_tokens: value("s-max"), seed: value("s-seed"),
    };
    return JSON.stringify(body); /* what is undefined is left out */
  }

  function message(role, who, text) {
    const m = element("div", "message");
    m.dataset.role = role;
    m.append(element("div", "who", who), element("div", "text", text));
    return m;
  }

  function atEnd(log) { return log.scrollHeight - log.scrollTop - log.clientHeight < 60; }

  async function answerOf(model, history, box, signal) {
    const text = box.querySelector(".text"), foot = element("div", "foot"), log = $("chat-log");
    const start = performance.now();
    let content = "", thoughts = "", reason = "", usage = null, calls = "";
    box.classList.add("busy");
    try {
      const answer = await ask("v1/chat/completions", {method: "POST", headers: {"Content-Type": "application/json"},
        body: request(model, history), signal});
      if (!answer.ok) throw new Error(await faultOf(answer));
      await events(answer, e => {
        if (e.error) throw new Error(e.error.message);
        if (e.usage) usage = e.usage;
        const choice = e.choices && e.choices[0];
        if (!choice) return;
        const stay = atEnd(log);
        if (choice.delta && choice.delta.content) content += choice.delta.content;
        if (choice.delta && choice.delta.reasoning_content) thoughts += choice.delta.reasoning_content;
        for (const c of choice.delta && choice.delta.tool_calls || [])
          calls += (c.function.name ? c.function.name + " " : "") + (c.function.arguments || "");
        if (choice.finish_reason) reason = choice.finish_reason;
        text.textContent = thoughts + (thoughts ? "\n\n" : "") + content + calls;
        if (stay) log.scrollTop = log.scrollHeight;
      });
    } catch (e) {
      if (e.name === "AbortError") reason = "stopped";
      else box.append(element("div", "fault", e.message || "The server does not answer."));
    }
    box.classList.remove("busy");
    const seconds = (performance.now() - start) / 1000, made = usage ? usage.completion_tokens : 0;
    const parts = [];
    if (made) parts.push(made + " tokens", (made / seconds).toFixed(made / seconds < 20 ? 1 : 0) + " per second");
    if (reason && reason !== "stop") parts.push(reason === "length" ? "cut at the limit" : reason);
    foot.textContent = parts.join(" · ");
    if (parts.length) box.append(foot);
    return content || calls;
  }

  function setBusy(abort) {
    chat.busy = abort;
    $("chat-send").disabled = !!abort;
    $("chat-stop").hidden = !abort;
  }

  async function send() {
    const text = $("chat-input").value;
    const models = [$("chat-model").value, $("chat-model-2").value].filter((m, i) => i === 0 || m);
    if (chat.busy || !text.trim() || !models[0]) return;
    if (!chat.turns.length) $("chat-log").replaceChildren();
    const turn = element("div", "turn" + (models.length > 1 ? " pair" : "")), log = $("chat-log");
    const boxes = models.map(m => message("assistant", m, ""));
    turn.append(message("user", "You", text), ...boxes);
    log.append(turn);
    log.scrollTop = log.scrollHeight;
    chat.turns.push(turn);
    $("chat-input").value = "";
    const abort = new AbortController();
    setBusy(abort);
    await Promise.all(models.map(async (m, i) => {
      const side = chat.sides[i];
      side.push({role: "user", content: text});
      const said = await answerOf(m, side.slice(), boxes[i], abort.signal);
      if (said) side.push({role: "assistant", content: said});
      else side.pop();
    }));
    setBusy(null);
    $("chat-input").focus({preventScroll: true});
  }

  function clearChat() {
    if (chat.busy) chat.busy.abort();
    chat.turns = [];
    chat.sides = [[], []];
    $("chat-log").replaceChildren(element("p", "empty", "Nothing said yet. Choose a second model to see two answers next to each other."));
  }

  /* ---- views ---- */

  function show(name) {
    for (const view of ["run", "chat"]) {
      $(view).hidden = view !== name;
      $("tab-" + view).setAttribute("aria-selected", String(view === name));
      $("tab-" + view).tabIndex = view === name ? 0 : -1;
    }
    if (name === "run") drawRun();
  }

  function listen() {
    $("tab-run").onclick = () => show("run");
    $("tab-chat").onclick = () => show("chat");
    $("tabs").onkeydown = e => {
      if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
      const other = $("run").hidden ? "run" : "chat";
      show(other);
      $("tab-" + other).focus();
    };
    $("pause").onclick = () => control(run.state === "paused" ? "resume" : "pause", $("pause"));
    $("checkpoint").onclick = () => control("checkpoint", $("checkpoint"));
    $("stop").onclick = () => { openStop($("stop-ask").hidden); if (!$("stop-ask").hidden) $("stop-confirm").focus(); };
    $("stop-cancel").onclick = () => { openStop(false); $("stop").focus(); };
    $("stop-confirm").onclick = () => { openStop(false); control("stop", $("stop")); };
    $("stop-ask").onkeydown = e => { if (e.key === "Escape") { openStop(false); $("stop").focus(); } };
    $("chat-form").onsubmit = e => { e.preventDefault(); send(); };
    $("chat-input").onkeydown = e => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
    };
    $("chat-stop").onclick = () => { if (chat.busy) chat.busy.abort(); };
    $("chat-clear").onclick = () => { clearChat(); $("chat-input").focus(); };
    window.addEventListener("hashchange", () => { if (/key=/.test(location.hash)) { takeKey(); location.reload(); } });
  }

  async function start() {
    takeKey();
    listen();
    clearChat();
    lossChart = Chart("loss-chart", "Loss", {smooth: true});
    rateChart = Chart("rate-chart", "Learning rate", {fromZero: true});
    speedChart = Chart("speed-chart", "Tokens per second", {fromZero: true});
    try {
      const answer = await ask("v1/run");
      run.there = answer.ok;
      if (answer.ok) showState(run.last = await answer.json());
    } catch (e) {
      notice("The server does not answer.");
    }
    $("tabs").hidden = !run.there;
    if (!run.there) for (const view of ["run", "chat"]) $(view).removeAttribute("role");
    show(run.there ? "run" : "chat");
    await readModels();
    if (run.there) {
      followRun();
      setInterval(() => { if (!document.hidden && run.state) readRun().then(readExtras).catch(lost); }, 5000);
    }
  }

  start();
})();
