// Chooses between the two scales of each axis, switches series off and on, and tells the figures of
// a point.
// All places were computed before: data-across and data-up hold for each vertex of a path
// where it stands on the scale that the page does not open with (of a whole drawing, pairs
// of both); data-say what it tells.
(() => {
  'use strict';
  const root = document.documentElement;
  const form = document.getElementById('switches');
  const tip = document.getElementById('tip');
  const opened = { x: root.dataset.x, y: root.dataset.y };
  const VERTEX = /([ML(])(-?[\d.]+) (-?[\d.]+)/g;
  const places = new WeakMap(), points = new WeakMap();

  function redraw() {
    const [across, up] = ['x', 'y'].map(axis => root.dataset[axis] !== opened[axis]);
    for (const chart of document.querySelectorAll('svg.chart')) {
      const pairs = across ? (chart.dataset.across ?? '').split(' ') : [];
      const moved = Object.fromEntries(pairs.flatMap((x, at) => at % 2 ? [] : [[x, pairs[at + 1]]]));
      for (const each of chart.querySelectorAll('path, [transform]')) {
        const name = each.hasAttribute('transform') ? 'transform' : 'd';
        if (!places.has(each)) places.set(each, each.getAttribute(name));
        const xs = across && each.dataset.across?.split(' '), ys = up && each.dataset.up?.split(' ');
        let at = -1;
        each.setAttribute(name, places.get(each).replace(VERTEX, (_, command, x, y) => {
          at++;
          return `${command}${xs ? xs[at] : moved[x] ?? x} ${ys ? ys[at] : y}`;
        }));
      }
      points.delete(chart);
    }
    hide();
  }

  // So that a view can be kept; a browser that forbids it only forgets it.
  function keep() {
    const without = [...off].map(name => `&off=${encodeURIComponent(name)}`).join('');
    try { history.replaceState(null, '', `#x=${root.dataset.x}&y=${root.dataset.y}${without}`); } catch { /* see above */ }
  }

  function choose(axis, kind) {
    const radio = document.getElementById(`${axis}-${kind}`);
    if (!radio || root.dataset[axis] === kind) return;
    root.dataset[axis] = kind;
    radio.checked = true;
    redraw();
  }

  // Hides what is drawn of the series that are off; tables have them all.
  const off = new Set(), keys = [...document.querySelectorAll('.key li')], named = li => li.textContent.trim();
  function switched() {
    for (const li of keys) {
      const { series } = li.dataset, is = !off.has(named(li));
      li.setAttribute('aria-checked', is);
      // The answer of the first chapter stands before it.
      const own = li.closest('.chapter'), scopes = own ? [own] : [li.closest('.answer'), document.querySelector('.chapter')];
      for (const scope of scopes) {
        for (const part of scope.querySelectorAll(`svg.chart .${series}, .panel.${series}`)) part.classList.toggle('off', !is);
      }
    }
    for (const chart of document.querySelectorAll('svg.chart')) points.delete(chart);
    hide();
  }
  for (const li of keys) {
    li.setAttribute('role', 'switch');
    li.tabIndex = 0;
    const turn = () => {
      if (!off.delete(named(li))) off.add(named(li));
      switched();
      keep();
    };
    li.addEventListener('click', turn);
    li.addEventListener('keydown', event => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      turn();
      event.preventDefault();
    });
  }

  // Everything of a chart that can be pointed at, in the order of its table.
  function told(chart) {
    if (!points.has(chart)) {
      const all = [...chart.querySelectorAll('[data-say]')].filter(path => !path.closest('.off')).flatMap(path => {
        const says = path.dataset.say.split('|');
        return [...path.getAttribute('d').matchAll(VERTEX)].map(([, , x, y], n) => ({ x: +x, y: +y, say: says[n] }));
      });
      points.set(chart, all.sort((a, b) => parseFloat(a.say) - parseFloat(b.say) || 0));
    }
    return points.get(chart);
  }

  // A row of the figure's table, one of its cells, or a text.
  function words(chart, say) {
    const [, row, column] = say.match(/^(\d+)(?:\.(\d+))?$/) ?? [];
    if (!row) return say;
    const figure = chart.closest('figure');
    const heads = [...figure.querySelectorAll('table.data th')].map(e => e.textContent);
    const cells = [...figure.querySelectorAll('table.data tbody tr')[row].cells].map(e => e.textContent);
    const lines = [`${cells[0]}, ${cells[1]} ${+cells[1] === 1 ? heads[1].replace(/s$/, '') : heads[1]}`];
    for (let at = 2; at < heads.length - 1; at++) {
      if (cells[at] !== '–' && (!column || at === +column)) lines.push(`${heads[at]}: ${cells[at]}`);
    }
    const doubts = (chart.closest('.chapter') ?? document).querySelector(`.doubts [data-row="${row}"]`);
    return lines.concat(doubts ? doubts.textContent : []).join('\n');
  }

  let shown = null;
  function hide() {
    document.querySelector('circle.on')?.remove();
    shown = null;
    tip.hidden = true;
  }
  function show(chart, point) {
    if (point === shown) return;
    hide();
    shown = point;
    const ring = document.createElementNS(chart.namespaceURI, 'circle');
    for (const [name, value] of Object.entries({ class: 'on', r: 6, cx: point.x, cy: point.y })) ring.setAttribute(name, value);
    chart.append(ring);
    tip.textContent = words(chart, point.say);
    tip.hidden = false;
    const at = ring.getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 12;
    tip.style.left = `${scrollX + Math.max(8, Math.min(at.right + 10, room))}px`;
    const above = at.top - tip.offsetHeight - 10;
    tip.style.top = `${scrollY + (above > 56 ? above : at.bottom + 10)}px`;
  }

  function nearest(chart, event) {
    const box = chart.getBoundingClientRect();
    const scale = box.width / chart.viewBox.baseVal.width;
    const [x, y] = [(event.clientX - box.left) / scale, (event.clientY - box.top) / scale];
    let best = null, least = 30;
    for (const point of told(chart)) {
      const far = Math.hypot(point.x - x, point.y - y);
      if (far < least) [best, least] = [point, far];
    }
    return best;
  }

  // To the next that tells something else.
  function step(chart, by) {
    const all = told(chart);
    const steps = all.filter((point, at) => !at || point.say !== all[at - 1].say);
    if (!steps.length) return;
    const from = shown ? steps.findIndex(point => point.say === shown.say) : -1;
    show(chart, steps[from < 0 ? (by > 0 ? 0 : steps.length - 1) : (from + by + steps.length) % steps.length]);
  }

  for (const chart of document.querySelectorAll('svg.chart')) {
    chart.addEventListener('pointermove', event => {
      const point = nearest(chart, event);
      if (point) show(chart, point); else hide();
    });
    chart.addEventListener('pointerleave', hide);
    chart.addEventListener('blur', hide);
    chart.addEventListener('keydown', event => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!by) return;
      step(chart, by);
      event.preventDefault();
    });
  }

  const choice = (axis, kind) => { choose(axis, kind); keep(); };
  form.addEventListener('change', event => choice(event.target.name, event.target.value));
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape') hide();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'x' || event.key === 'y') choice(event.key, root.dataset[event.key] === 'log' ? 'linear' : 'log');
  });
  function follow() {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const axis of ['x', 'y']) {
      const kind = asked.get(axis);
      if (kind === 'linear' || kind === 'log') choose(axis, kind);
    }
    off.clear();
    for (const name of asked.getAll('off')) off.add(name);
    switched();
  }
  addEventListener('hashchange', follow);
  follow();
  form.hidden = false;
})();
