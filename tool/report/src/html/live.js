'use strict';
(() => {
  const NS = 'http://www.w3.org/2000/svg', W = 560, H = 180, BASE = H - 4;
  const by = id => document.getElementById(id);
  const text = (id, words) => { by(id).textContent = words; };

  const number = value => {
    if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString('en-US');
    return String(Number(value.toPrecision(3)));
  };
  const time = ns => {
    for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['us', 1e3]]) if (ns >= size) return number(ns / size) + ' ' + unit;
    return ns + ' ns';
  };
  const named = (names, values, write) => names.map((name, nth) => name + ' ' + write(values[nth])).join(', ');

  const fairness = run => {
    const shares = run.shares, most = shares[shares.length - 1], each = W / shares.length, gap = each > 6 ? 1 : 0;
    const svg = document.createElementNS(NS, 'svg'), bars = document.createElementNS(NS, 'path');
    const bar = (v, nth) => `M${nth * each} ${BASE}V${BASE - BASE * v / most}h${each - gap}V${BASE}Z`;
    for (const [key, value] of Object.entries({ class: 'chart', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': 'Operations of each worker, ascending' })) svg.setAttribute(key, value);
    bars.setAttribute('class', 'bars c2');
    bars.setAttribute('d', shares.map(bar).join(''));
    svg.append(bars);
    by('drawing').replaceChildren(svg);
    text('served', `least ${number(shares[0])}, most ${number(most)}, without any ${number(run.none)} of ${number(run.workers)}`);
  };

  const now = run => {
    const parts = [run.point];
    if (run.window_s) parts.push(`${run.elapsed_s.toFixed(1)} of ${run.window_s.toFixed(1)} s`);
    else if (run.elapsed_s) parts.push(run.elapsed_s.toFixed(1) + ' s');
    parts.push(number(run.operations) + (run.planned ? ' of ' + number(run.planned) : '') + ' operations');
    if (run.overlaps !== undefined) parts.push(number(run.overlaps) + (run.overlaps === 1 ? ' overlap' : ' overlaps'));
    return parts.join(', ');
  };

  // Between two runs the figures of the last one stay in view.
  const figures = run => {
    text('throughput', number(run.per_s) + '/s');
    text('timed', run.timed ? run.timed.replace(/_ns$/, '').replaceAll('_', ' ') + ' time' : 'Latency');
    text('latency', run.ns ? named(['p50', 'p90', 'p99', 'max'], run.ns, ns => ns === null ? 'too few' : time(ns)) : 'not timed');
    text('cpus', run.cpus ? named(['workers', 'server', 'jostle', 'others'], run.cpus, cpus => cpus.toFixed(2)) : 'from the second look on');
    if (run.shares.length && run.operations) fairness(run);
  };

  let state = { title: 'jostle', ended: null }, results = '', wanted = false;
  const draw = () => {
    wanted = false;
    document.title = by('title').textContent = state.title;
    text('progress', state.ended || state.progress || '');
    text('run', state.run && !state.ended ? now(state.run) : '');
    if (state.run && state.run.per_s !== undefined) figures(state.run);
    if (state.owners) text('owners', `${state.owners.point}: ` + state.owners.owners.map(([name, s]) => `${name} ${(s / state.owners.between_s).toFixed(2)}`).join(', '));
    // Made by the program, which escapes what a user named.
    if (results) by('results').innerHTML = results;
    results = '';
  };

  const events = new EventSource(location.pathname.replace(/\/?$/, '/events'));
  const on = (name, take) => events.addEventListener(name, event => {
    take(JSON.parse(event.data));
    // A page that nobody looks at is not drawn.
    if (!wanted) requestAnimationFrame(draw);
    wanted = true;
  });
  const link = (kind, word) => { by('link').className = kind; text('link', word); };
  events.onopen = () => link('on', 'live');
  events.onerror = () => link(state.ended ? '' : 'lost', state.ended ? 'ended' : 'connection lost');
  on('results', table => { results = table; });
  on('state', all => {
    state = all;
    if (state.ended) { events.close(); link('', 'ended'); }
  });
})();
