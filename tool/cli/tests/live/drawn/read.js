// Where everything of a page's drawings stands, in pixels of the screen: from each path and
// its matrix, and from the texts of the axes. Nothing is taken from the page's own data.
function read(page) {
  const seen = e => e && e.getClientRects().length > 0;
  const on = (e, x, y, m = e.getScreenCTM()) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f];
  const vertices = (e, m = e.getScreenCTM()) => [...e.getAttribute('d').matchAll(/[ML](-?[\d.]+)[ ,](-?[\d.]+)/g)]
    .map(([, x, y]) => on(e, +x, +y, m));
  const middle = e => { const b = e.getBoundingClientRect(); return [(b.left + b.right) / 2, (b.top + b.bottom) / 2]; };
  // A tick is at its line; the text that is nearest to the line names it. A drawing may show
  // the group of another, through the matrix of its own `use`.
  const ticks = (svg, axis) => {
    const along = axis === 'x' ? 0 : 1;
    const shown = [...svg.querySelectorAll(`.ticks.${axis}`)].find(seen);
    const own = shown?.getScreenCTM();
    const group = shown?.localName === 'use' ? page.querySelector(shown.getAttribute('href')) : shown;
    const paths = group ? [...group.querySelectorAll(axis === 'x' ? '.minor' : '.grid')]
      : axis === 'x' ? [...svg.querySelectorAll(':scope > .grid')] : [];
    const texts = group ? [...group.querySelectorAll('text')]
      : paths.map(p => p.nextElementSibling);
    const lines = paths.flatMap(p => vertices(p, own)).map(v => v[along]);
    const named = text => {
      if (!own) return middle(text);
      const box = text.getBBox();
      return on(text, box.x + box.width / 2, box.y + box.height / 2, own);
    };
    return texts.map(text => {
      const near = named(text)[along];
      const line = lines.reduce((best, l) => Math.abs(l - near) < Math.abs(best - near) ? l : best, Infinity);
      return [text.textContent, line];
    });
  };
  const part = e => ({
    kind: e.getAttribute('class'),
    at: e.matches('circle') ? [on(e, +e.getAttribute('cx'), +e.getAttribute('cy'))]
      : vertices(e),
  });
  const drawn = '.line, .area, .bar, .dots, .tick, .pt, .run, .median';
  return [...page.querySelectorAll('figure svg.chart')].filter(seen).map(svg => {
    const leaders = [...svg.querySelectorAll('.leader')];
    return {
      title: svg.closest('figure').querySelector('strong').textContent,
      series: (svg.closest('.panel')?.querySelector('.caption')?.textContent ?? '').trim(),
      x: ticks(svg, 'x'), y: ticks(svg, 'y'),
      parts: [...svg.querySelectorAll(drawn)].filter(e => !e.closest('.swatch')).map(part),
      labels: [...svg.querySelectorAll('text.label')].map((t, n) => [t.textContent, middle(t), vertices(leaders[n])]),
    };
  });
}
