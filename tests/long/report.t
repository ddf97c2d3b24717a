#!/usr/bin/env bash
# The page of kolo report in a browser: no message in its console, every curve has its points, hover and arrow
# keys show the values that the events have, tables sort, texts have contrast in light and dark, it prints.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack python3
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    skip_all "no Chromium: apt-get install chromium"
cd "$ROOM" || exit 1
shapes_data 256 96
export OMP_NUM_THREADS=1
for lr in 0.1 0.02; do
    timeout 100 kolo train shapes data=data/train val=data/val run="runs/lr$lr" epochs=3 batch=32 threads=1 \
        noise_scale=true micro_batch=16 lr=$lr > train.log 2>&1
    ok $? "a run with lr=$lr" train.log
done
kolo report runs/lr0.1 out=one.html > log && kolo report runs/lr0.1 runs/lr0.02 out=two.html > log
ok $? "their pages" log

# asks PAGE SCRIPT [FLAG...]: the page, with a script behind its own, as the browser leaves it; what the
# script writes by say() goes to the file `said`, messages of the console to `console`
asks() {
    local page=$1 script=$2
    shift 2
    python3 - "$page" "$script" << 'EOF'
import sys
page = open(sys.argv[1]).read()
probe = """<script>
const lines = [];
const say = (...words) => lines.push(words.join(' '));
addEventListener('error', e => say('error', e.message));
addEventListener('load', () => {
  try { %s } catch (e) { say('threw', e.stack); }
  const out = document.createElement('pre');
  out.id = 'said';
  out.textContent = lines.join('\\n');
  document.body.append(out);
});
</script></head>""" % open(sys.argv[2]).read()
open("probed.html", "w").write(page.replace("</head>", probe, 1))
EOF
    timeout 100 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --enable-logging=stderr --user-data-dir="$ROOM/profile" --window-size=1200,900 "$@" \
        --dump-dom "file://$ROOM/probed.html" \
        > dom 2> browser.log
    grep -E 'CONSOLE' browser.log > console
    python3 -c '
import html, re
found = re.search(r"(?s)<pre id=\"said\">(.*?)</pre>", open("dom").read())
print(html.unescape(found.group(1)) if found else "the page did not load")' > said
}

cat > figures.js << 'EOF'
for (const figure of document.querySelectorAll('figure[data-curves]')) {
  const plot = JSON.parse(figure.querySelector('script').textContent), svg = figure.querySelector('svg');
  const paths = [...svg.querySelectorAll('path[data-points]')];
  const drawn = paths.map(p => (p.getAttribute('d').match(/[ML]/g) || []).length);
  say('figure', figure.id, drawn.join(), plot.series.map(s => s.x.length).join());
  for (const path of paths) {
    const box = path.getBBox(), all = svg.viewBox.baseVal;
    if (box.x < 0 || box.y < 0 || box.x + box.width > all.width || box.y + box.height > all.height)
      say('outside', figure.id);
  }
  const box = svg.getBoundingClientRect();
  const middle = {clientX: box.left + box.width / 2, clientY: box.top + 50};
  svg.dispatchEvent(new PointerEvent('pointermove', middle));
  const tip = figure.querySelector('.tip');
  if (tip.hidden || tip.textContent.split('\n').length !== 1 + plot.series.length) say('no hover', figure.id);
  svg.dispatchEvent(new PointerEvent('pointerleave'));
  if (!tip.hidden) say('hover stays', figure.id);
  figure.focus();
  if (document.activeElement !== figure) say('no focus', figure.id);
  const press = key => figure.dispatchEvent(new KeyboardEvent('keydown', {key, cancelable: true}));
  press('Home');
  say('first', figure.id, tip.textContent.split('\n').join(' | '));
  press('End');
  say('last', figure.id, tip.textContent.split('\n').join(' | '));
  press('Escape');
  if (!tip.hidden) say('Escape', figure.id);
}
for (const svg of document.querySelectorAll('svg'))
  for (const text of svg.querySelectorAll('text')) {
    const a = text.getBoundingClientRect(), b = svg.getBoundingClientRect();
    if (a.left < b.left - 2 || a.right > b.right + 2 || a.bottom > b.bottom + 2)
      say('text outside', svg.parentNode.id, text.textContent);
  }
if (document.documentElement.scrollWidth > innerWidth) say('wider than the window');
EOF
asks one.html figures.js
is "$(wc -l < console)" 0 "no message in the console" || diag < console
like said '^figure loss 24,3 24,3$' "loss: its points are drawn, and in its script"
none "every figure has its points, within its frame; hover, focus and keys work" "$(grep -vE \
    '^(figure [a-z_]+ ([0-9,]+) \2$|first|last)' said)"
is "$(grep -c ^figure said)" 7 "seven figures of curves"
none "the keys show the values of the events" "$(python3 - << 'EOF'
import json
events = [json.loads(l) for l in open("runs/lr0.1/events.jsonl")]
steps, evals = [[e for e in events if e["event"] == k] for k in ("step", "eval")]
said = open("said").read()
def number(v): return "%g" % float("%.4g" % v)
last = f"last loss epoch 3 | training: {number(steps[-1]['loss'])} | validation: {number(evals[-1]['loss'])}"
first = f"first lr epoch 0.125 | learning rate: {number(steps[0]['lr'])}"
for line in (last, first):
    if line not in said: print(line)
EOF
)" || diag < said

cat > sort.js << 'EOF'
const table = document.querySelector('table.runs'), heads = [...table.tHead.rows[0].cells];
const column = heads.findIndex(h => h.textContent === 'lr');
const values = () => [...table.tBodies[0].rows].map(r => r.cells[column].textContent).join();
heads[column].querySelector('button').click();
say(values(), heads[column].getAttribute('aria-sort'));
heads[column].querySelector('button').click();
say(values(), heads[column].getAttribute('aria-sort'));
EOF
asks two.html sort.js
is "$(tr '\n' ' ' < said)$(wc -l < console)" "0.02,0.1 ascending 0.1,0.02 descending 0" \
    "a head sorts, both ways"

# WCAG 2: 4.5 for texts, 3 for lines
cat > contrast.js << 'EOF'
const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const parse = c => (c.match(/[\d.]+/g) || []).map(Number);
const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
const ratio = (a, b) => {
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
const ground = e => {
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
let n = 0;
const texts = 'h1,h2,p,dt,dd,td,th,button,summary,figcaption,small,.state,pre,svg text';
for (const e of document.querySelectorAll(texts)) {
  if (e.classList.contains('mt')) continue;
  const style = getComputedStyle(e), r = ratio(parse(e.closest('svg') ? style.fill : style.color), ground(e));
  n++;
  if (r < 4.5) say('contrast', e.tagName, r.toFixed(2), e.textContent.slice(0, 30));
}
for (const e of document.querySelectorAll('path[data-points],rect.b')) {
  const style = getComputedStyle(e), of = e.matches('rect') ? style.fill : style.stroke;
  const r = ratio(parse(of), ground(e));
  n++;
  if (r < 3) say('contrast of a line', e.className.baseVal, r.toFixed(2));
}
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
say(n > 100 ? 'checked' : 'checked only ' + n, dark ? 'dark' : 'light');
EOF
asks one.html contrast.js
is "$(cat said)" "checked light" "light: texts have a contrast of 4.5, lines one of 3"
asks one.html contrast.js --blink-settings=preferredColorScheme=0
is "$(cat said)" "checked dark" "dark: likewise"
asks one.html figures.js --window-size=400,800
none "on a telephone nothing is wider than the window" "$(grep -E '^(wider|text outside|outside)' said)"

timeout 100 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$ROOM/profile" \
    --no-pdf-header-footer --print-to-pdf=page.pdf "file://$ROOM/one.html" > log 2>&1
ok $? "it prints" log
pages=$(grep -ac '/Type */Page\b' page.pdf)
[ "$pages" -ge 2 ] && [ "$pages" -le 12 ]
ok $? "on a few pages ($pages)"
done_testing
