// Chooses between the two scales of each axis, and tells the figures of a mark.
// All positions were computed before: data-d and data-at hold for each vertex
// x log, x linear, y log, y linear.
(() => {
  'use strict';
  const root = document.documentElement;
  const form = document.getElementById('switches');
  const tip = document.getElementById('tip');
  const linear = axis => root.dataset[axis] === 'linear' ? 1 : 0;

  const place = four => [+four[linear('x')], +four[2 + linear('y')]];

  function path(d) {
    const words = d.split(' ');
    let out = '';
    for (let at = 0; at < words.length;) {
      const command = words[at++];
      out += command;
      if (command === 'M' || command === 'L') {
        out += place(words.slice(at, at + 4)).join(' ');
        at += 4;
      }
    }
    return out;
  }

  function redraw() {
    for (const each of document.querySelectorAll('[data-d]')) each.setAttribute('d', path(each.dataset.d));
    for (const each of document.querySelectorAll('[data-at]')) {
      each.setAttribute('transform', `translate(${place(each.dataset.at.split(' ')).join(' ')})`);
    }
    hide();
  }

  function choose(axis, kind) {
    if (root.dataset[axis] === kind) return;
    root.dataset[axis] = kind;
    document.getElementById(`${axis}-${kind}`).checked = true;
    redraw();
    // So that a view can be kept; a browser that forbids it only forgets it.
    try { history.replaceState(null, '', `#x=${root.dataset.x}&y=${root.dataset.y}`); } catch { /* see above */ }
  }

  let shown = null;
  function hide() {
    if (shown) shown.classList.remove('on');
    shown = null;
    tip.hidden = true;
  }
  function show(mark) {
    if (mark === shown) return;
    hide();
    shown = mark;
    mark.classList.add('on');
    const { of, doubts } = mark.parentNode.dataset;
    tip.textContent = [of, mark.dataset.says, doubts].filter(Boolean).join('\n');
    tip.hidden = false;
    const at = mark.getBoundingClientRect();
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
    for (const mark of chart.querySelectorAll('.pt')) {
      const [mx, my] = place(mark.dataset.at.split(' '));
      const far = Math.hypot(mx - x, my - y);
      if (far < least) [best, least] = [mark, far];
    }
    return best;
  }

  function step(chart, by) {
    const marks = [...chart.querySelectorAll('.pt')];
    if (!marks.length) return;
    const from = marks.indexOf(shown);
    show(marks[from < 0 ? (by > 0 ? 0 : marks.length - 1) : (from + by + marks.length) % marks.length]);
  }

  for (const chart of document.querySelectorAll('svg.chart')) {
    chart.addEventListener('pointermove', event => {
      const mark = nearest(chart, event);
      if (mark) show(mark); else hide();
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

  form.addEventListener('change', event => choose(event.target.name, event.target.value));
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape') hide();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'x' || event.key === 'y') choose(event.key, linear(event.key) ? 'log' : 'linear');
  });
  function follow() {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const axis of ['x', 'y']) {
      const kind = asked.get(axis);
      if (kind === 'linear' || kind === 'log') choose(axis, kind);
    }
  }
  addEventListener('hashchange', follow);
  follow();
  form.hidden = false;
})();
