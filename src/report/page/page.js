'use strict';
/* Curves: the values at the pointer, or at the point that the arrow keys have moved to. */
for (const figure of document.querySelectorAll('figure[data-curves]')) {
  const plot = JSON.parse(figure.querySelector('script').textContent);
  const svg = figure.querySelector('svg'), {low, high} = plot, [left, span, width] = plot.frame;
  const tip = figure.appendChild(document.createElement('div'));
  const rule = svg.appendChild(document.createElementNS('http://www.w3.org/2000/svg', 'path'));
  const points = [...new Set(plot.series.flatMap(s => s.x))].sort((a, b) => a - b);
  let at = -1;
  tip.className = 'tip';
  tip.setAttribute('role', 'status');
  tip.hidden = true;
  rule.setAttribute('class', 'rule');
  const across = x => left + (x - low) / (high - low) * span;
  const nearest = (list, x) => {
    let a = 0, b = list.length - 1;
    while (b - a > 1) { const m = (a + b) >> 1; if (list[m] < x) a = m; else b = m; }
    return Math.abs(list[a] - x) <= Math.abs(list[b] - x) ? a : b;
  };
  const number = v => String(Number(v.toPrecision(4)));
  const show = index => {
    at = Math.max(0, Math.min(points.length - 1, index));
    const x = points[at], box = svg.getBoundingClientRect(), outer = figure.getBoundingClientRect();
    const height = svg.viewBox.baseVal.height;
    rule.setAttribute('d', `M${across(x)} 8V${height - 44}`);
    tip.textContent = [`${plot.x} ${number(x)}`].concat(plot.series.filter(s => s.x.length).map(s =>
      `${s.label}: ${number(s.y[nearest(s.x, x)])}${plot.unit}`)).join('\n');
    tip.hidden = false;
    const from = box.left - outer.left + across(x) / width * box.width + 10;
    tip.style.left = Math.max(0, Math.min(from, outer.width - tip.offsetWidth - 4)) + 'px';
    tip.style.top = box.top - outer.top + 14 + 'px';
  };
  const hide = () => { tip.hidden = true; rule.removeAttribute('d'); };
  svg.addEventListener('pointermove', e => {
    const box = svg.getBoundingClientRect();
    const x = low + ((e.clientX - box.left) / box.width * width - left) / span * (high - low);
    if (points.length) show(nearest(points, x));
  });
  svg.addEventListener('pointerleave', hide);
  figure.addEventListener('blur', hide);
  figure.addEventListener('keydown', e => {
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: points.length - 1,
      PageUp: at - 10, PageDown: at + 10}[e.key];
    if (e.key === 'Escape') hide();
    if (to === undefined || !points.length) return;
    e.preventDefault();
    show(to);
  });
}
/* Tables: a click on a head sorts by its column, a second one the other way round. */
for (const button of document.querySelectorAll('th button')) {
  button.addEventListener('click', () => {
    const head = button.closest('th'), body = head.closest('table').tBodies[0];
    const up = head.getAttribute('aria-sort') !== 'ascending', column = head.cellIndex;
    const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
    for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    body.append(...[...body.rows].sort((a, b) => {
      const x = value(a), y = value(b), both = x !== '' && y !== '' && !isNaN(x) && !isNaN(y);
      return (up ? 1 : -1) * (both ? x - y : x.localeCompare(y));
    }));
  });
}
