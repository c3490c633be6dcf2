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

  const fairness = look => {
    const shares = look.shares, most = shares[shares.length - 1], each = W / shares.length, gap = each > 6 ? 1 : 0;
    const svg = document.createElementNS(NS, 'svg'), bars = document.createElementNS(NS, 'path');
    const bar = (v, nth) => `M${nth * each} ${BASE}V${BASE - BASE * v / most}h${each - gap}V${BASE}Z`;
    for (const [key, value] of Object.entries({ class: 'chart', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': 'Operations of each worker, ascending' })) svg.setAttribute(key, value);
    bars.setAttribute('class', 'bars c2');
    bars.setAttribute('d', shares.map(bar).join(''));
    svg.append(bars);
    by('drawing').replaceChildren(svg);
    text('served', `least ${number(shares[0])}, most ${number(most)}, without any ${number(look.none)} of ${number(look.workers)}`);
  };

  const now = ({ point, look }) => {
    if (!look) return point;
    const s = ns => (ns / 1e9).toFixed(1), of = (n, all) => number(n) + (all ? ' of ' + number(all) : '');
    const parts = [point, s(look.elapsed_ns) + (look.window_ns ? ' of ' + s(look.window_ns) : '') + ' s'];
    parts.push(of(look.operations, look.planned) + ' operations');
    if (look.overlaps !== null) parts.push(number(look.overlaps) + (look.overlaps === 1 ? ' overlap' : ' overlaps'));
    return parts.join(', ');
  };

  // Between two runs the figures of the last one stay in view.
  const figures = run => {
    text('throughput', number(run.per_s) + '/s');
    text('timed', run.timed ? run.timed.replace(/_ns$/, '').replaceAll('_', ' ') + ' time' : 'Latency');
    text('latency', run.ns ? named(['p50', 'p90', 'p99', 'max'], run.ns, ns => ns === null ? 'too few' : time(ns)) : 'not timed');
    text('cpus', run.cpus ? named(['workers', 'server', 'jostle', 'others'], run.cpus, cpus => cpus.toFixed(2)) : 'from the second look on');
    if (run.look.shares.length && run.look.operations) fairness(run.look);
  };

  const owners = ([point, used]) => {
    const named = used.others || [], rest = named.reduce((left, one) => left - one.cpu_s, used.others_s);
    const all = [['workers', used.workers_s], ['started for requests', used.requests_s], ['server', used.server_s], ['jostle', used.tool_s], ['kernel', used.machine_s]];
    const known = all.concat(named.map(one => [one.name, one.cpu_s]), [['others', Math.max(rest, 0)]]).filter(([, s]) => s >= 0);
    return `${point}: ` + known.map(([name, s]) => `${name} ${(s / used.between_s).toFixed(2)}`).join(', ');
  };

  let state = { title: 'jostle', ended: null }, results = '', wanted = false;
  const draw = () => {
    wanted = false;
    document.title = by('title').textContent = state.title;
    text('progress', state.ended || state.progress || '');
    text('run', state.run && !state.ended ? now(state.run) : '');
    if (state.run && state.run.look) figures(state.run);
    if (state.accounts) text('owners', owners(state.accounts));
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
