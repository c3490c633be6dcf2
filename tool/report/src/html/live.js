'use strict';
(() => {
  const NS = 'http://www.w3.org/2000/svg';
  const W = 560, H = 220, L = 56, R = 8, T = 8, B = 26;
  const by = id => document.getElementById(id);
  const state = { title: 'jostle', progress: '', elapsed_s: 0, points: [], cores: 1, samples: [], run: null, served: null, owners: null, results: '', ended: null };
  const OWNERS = [['workers', 'c0'], ['server', 'c1'], ['jostle', 'c4'], ['others', 'c7']];
  const BANDS = ['p50', 'p90', 'p99', 'max'];

  const element = (name, attributes, text) => {
    const made = document.createElementNS(NS, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const number = value => {
    if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString('en-US');
    return String(Number(value.toPrecision(3)));
  };
  const time = ns => {
    for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['us', 1e3]]) if (ns >= size) return number(ns / size) + ' ' + unit;
    return ns + ' ns';
  };
  // Seconds, minutes or hours in round numbers: steps that a clock has.
  const times = (most, count) => {
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
    const step = steps.find(s => s >= most / count) || Math.ceil(most / count / 86400) * 86400;
    const found = [];
    for (let nth = 0; nth * step <= most; nth++) found.push(nth * step);
    return found;
  };
  const clock = s => s < 90 ? Math.round(s) + ' s' : s < 5400 ? (s / 60).toFixed(s < 600 ? 1 : 0) + ' min' : (s / 3600).toFixed(1) + ' h';

  // Steps of 1, 2, 2.5 or 5 times a power of ten.
  const ticks = (most, count) => {
    const raw = most / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map(n => n * power).find(n => n >= raw);
    const found = [];
    for (let nth = 0; nth * step <= most * 1.0001; nth++) found.push(nth * step);
    return found;
  };

  const chart = (id, said) => {
    const svg = element('svg', { class: 'chart', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': said });
    by(id).querySelector('.drawing').replaceChildren(svg);
    return svg;
  };
  const empty = (id, why) => chart(id, why).append(element('text', { x: W / 2, y: H / 2, 'text-anchor': 'middle', class: 'empty' }, why));
  const legend = (id, entries) => by(id).querySelector('.legend').replaceChildren(...entries.map(([colour, name, value]) => {
    const entry = document.createElement('span'), swatch = document.createElement('i'), figure = document.createElement('b');
    swatch.className = colour;
    figure.textContent = value;
    entry.append(swatch, name + ' ', figure);
    return entry;
  }));

  const x_axis = (svg, to) => {
    const x = t => L + (W - L - R) * t / Math.max(to, 1e-9);
    const axis = element('g', { class: 'x' });
    for (const t of times(to, 6)) {
      axis.append(element('text', { x: x(t), y: H - 8 }, clock(t)));
      axis.append(element('path', { class: 'minor', d: `M${x(t)} ${H - B}v4` }));
    }
    axis.append(element('path', { class: 'axis', d: `M${L} ${H - B}H${W - R}` }));
    svg.append(axis);
    return x;
  };
  const y_axis = (svg, most, mark) => {
    const top = most > 0 ? most * 1.05 : 1, y = v => H - B - (H - B - T) * v / top;
    const axis = element('g', { class: 'y' });
    for (const v of ticks(top, 4)) {
      axis.append(element('path', { class: 'grid', d: `M${L} ${y(v)}H${W - R}` }));
      axis.append(element('text', { x: L - 6, y: y(v) + 4 }, mark(v)));
    }
    svg.append(axis);
    return y;
  };
  const log_axis = (svg, least, most, mark) => {
    const low = Math.floor(Math.log10(least)), high = Math.max(Math.ceil(Math.log10(most)), low + 1);
    const y = v => H - B - (H - B - T) * (Math.log10(Math.max(v, 1)) - low) / (high - low);
    const axis = element('g', { class: 'y' });
    for (let power = low; power <= high; power++) {
      axis.append(element('path', { class: 'grid', d: `M${L} ${y(10 ** power)}H${W - R}` }));
      axis.append(element('text', { x: L - 6, y: y(10 ** power) + 4 }, mark(10 ** power)));
    }
    svg.append(axis);
    return y;
  };

  // A point is its target and its name; its colour is that of its target.
  const colour = point => 'c' + [...new Set(state.points.map(([target]) => target))].indexOf(state.points[point]?.[0]) % 8;

  // A line is broken between runs.
  const runs = (samples, usable) => {
    const found = [];
    for (const sample of samples.filter(usable)) {
      const last = found[found.length - 1];
      if (last && last[0].run === sample.run) last.push(sample); else found.push([sample]);
    }
    return found;
  };
  // A sample stands for the time before it.
  const steps = (run, x, y, of) => run.map((s, nth) => `${nth ? 'L' : 'M'}${x(s.t_s - s.span_s)} ${y(of(s))}H${x(s.t_s)}`).join('');
  const area = (run, x, y, low, high) => {
    const back = run.slice().reverse().map(s => `L${x(s.t_s)} ${y(low(s))}H${x(s.t_s - s.span_s)}`).join('');
    return steps(run, x, y, high) + back + 'Z';
  };
  // Time begins with the experiment.
  const until = samples => samples.length ? samples[samples.length - 1].t_s : 1;

  const throughput = samples => {
    if (!samples.length) return empty('throughput', 'nothing measured yet');
    const svg = chart('throughput', 'Throughput over time');
    const x = x_axis(svg, until(samples)), y = y_axis(svg, Math.max(...samples.map(s => s.per_s)), number);
    for (const run of runs(samples, () => true)) svg.append(element('path', { class: 'line ' + colour(run[0].point), d: steps(run, x, y, s => s.per_s) }));
    const shown = [...new Set(samples.map(s => s.point))].slice(-8);
    legend('throughput', shown.map(point => {
      const last = samples.filter(s => s.point === point).pop();
      return [colour(point), state.points[point]?.[1] || '', number(last.per_s) + '/s'];
    }));
  };

  const latency = samples => {
    const timed = samples.filter(s => s.ns && s.ns[3] !== null);
    if (!timed.length) return empty('latency', 'nothing timed yet');
    const svg = chart('latency', 'Latency over time: p50, p90, p99 and maximum');
    const all = timed.flatMap(s => s.ns).filter(v => v !== null);
    const x = x_axis(svg, until(samples)), y = log_axis(svg, Math.max(Math.min(...all), 1), Math.max(...all), time);
    for (const run of runs(timed, s => s.ns[0] !== null && s.ns[1] !== null)) svg.append(element('path', { class: 'band p90 c0', d: area(run, x, y, s => s.ns[0], s => s.ns[1]) }));
    for (const run of runs(timed, s => s.ns[1] !== null && s.ns[2] !== null)) svg.append(element('path', { class: 'band c0', d: area(run, x, y, s => s.ns[1], s => s.ns[2]) }));
    ['p50 c0', 'p90 c0', 'p99 c0', 'max c1'].forEach((style, nth) => {
      for (const run of runs(timed, s => s.ns[nth] !== null)) svg.append(element('path', { class: 'line ' + style, d: steps(run, x, y, s => s.ns[nth]) }));
    });
    const last = timed[timed.length - 1].ns;
    legend('latency', BANDS.map((name, nth) => [(nth < 3 ? 'c0 ' : 'c1 ') + name, name, last[nth] === null ? 'too few' : time(last[nth])]));
  };

  const fairness = run => {
    if (!run) return empty('fairness', 'nothing granted yet');
    by('fairness').querySelector('.note').textContent = `${run.point}: operations of each worker, ascending`;
    const svg = chart('fairness', 'Operations of each worker, ascending'), shares = run.shares, most = shares[shares.length - 1];
    const y = y_axis(svg, most, number), each = (W - L - R) / shares.length, gap = each > 6 ? 1 : 0;
    const bars = shares.map((v, nth) => `M${L + nth * each} ${H - B}V${y(v)}h${each - gap}V${H - B}Z`).join('');
    svg.append(element('path', { class: 'bars c2', d: bars }));
    svg.append(element('path', { class: 'axis', d: `M${L} ${H - B}H${W - R}` }));
    legend('fairness', [['c2', 'least', number(shares[0])], ['c2', 'most', number(most)], ['c2', 'without any', `${number(run.none)} of ${number(run.workers)}`]]);
  };

  const cpus = (samples, owners) => {
    const known = samples.filter(s => s.cpus);
    const last_run = owners ? [['c7', `last finished run, ${owners.point}:`, owners.owners.map(([name, s]) => `${name} ${(s / owners.between_s).toFixed(2)}`).join(', ')]] : [];
    if (!known.length) {
      empty('cpus', 'drawn from the second look at a run on, a second after the first');
      return legend('cpus', last_run);
    }
    const svg = chart('cpus', 'CPUs in use over time, by owner');
    const sum = (s, upto) => s.cpus.slice(0, upto).reduce((a, b) => a + b, 0);
    const x = x_axis(svg, until(samples)), y = y_axis(svg, Math.max(...known.map(s => sum(s, 4)), state.cores), number);
    for (const run of runs(known, () => true)) OWNERS.forEach(([, colour], nth) => {
      svg.append(element('path', { class: 'stack ' + colour, d: area(run, x, y, s => sum(s, nth), s => sum(s, nth + 1)) }));
    });
    const last = known[known.length - 1].cpus;
    const entries = OWNERS.map(([name, colour], nth) => [colour, name, last[nth].toFixed(2)]);
    legend('cpus', entries.concat(last_run));
  };

  const now = run => {
    if (!run) return '';
    const parts = [run.point];
    if (run.window_s) parts.push(`${run.elapsed_s.toFixed(1)} of ${run.window_s.toFixed(1)} s`);
    else if (run.elapsed_s) parts.push(run.elapsed_s.toFixed(1) + ' s');
    parts.push(number(run.operations) + (run.planned ? ' of ' + number(run.planned) : '') + ' operations');
    if (run.overlaps !== undefined) parts.push(number(run.overlaps) + (run.overlaps === 1 ? ' overlap' : ' overlaps'));
    return parts.join(', ');
  };

  let results = null, wanted = false;
  const draw = () => {
    wanted = false;
    document.title = by('title').textContent = state.title;
    by('progress').textContent = state.ended || state.progress;
    by('run').textContent = state.ended ? '' : now(state.run);
    throughput(state.samples);
    latency(state.samples);
    fairness(state.served);
    cpus(state.samples, state.owners);
    if (state.run && state.run.timed) by('latency').querySelector('.note').textContent = state.run.timed.replace(/_ns$/, '').replaceAll('_', ' ') + ' time';
    if (results !== state.results) {
      results = state.results;
      // Made by the program, which escapes what a user named.
      if (results) by('results').innerHTML = results;
    }
  };
  const changed = () => {
    if (wanted) return;
    wanted = true;
    // A page that nobody looks at is not drawn.
    requestAnimationFrame(draw);
  };

  const events = new EventSource(location.pathname.replace(/\/?$/, '/events'));
  const on = (name, take) => events.addEventListener(name, event => { take(JSON.parse(event.data)); changed(); });
  const link = (kind, text) => { by('link').className = kind; by('link').textContent = text; };
  events.onopen = () => link('on', 'live');
  events.onerror = () => link(state.ended ? '' : 'lost', state.ended ? 'ended' : 'connection lost');
  on('state', all => { Object.assign(state, all); entered(state.run); });
  on('tick', tick => Object.assign(state, tick));
  on('point', point => { state.points.push(point); });
  on('sample', sample => { state.samples.push(sample); });
  on('again', sample => { state.samples[state.samples.length - 1] = sample; });
  // Between two runs the last one's workers stay in view.
  const entered = run => { if (run && run.shares.length && run.operations) state.served = run; };
  on('run', run => { state.run = run; entered(run); });
  on('owners', owners => { state.owners = owners; });
  // New pieces as text, those of the table before by their place and number.
  on('results', parts => {
    const pieces = state.results.split(/(?=<t|<\/tbody)/);
    state.results = parts.map(part => typeof part === 'string' ? part : pieces.slice(part[0], part[0] + part[1]).join('')).join('');
  });
  on('end', how => { state.ended = how; state.run = null; events.close(); link('', 'ended'); });
  changed();
})();
