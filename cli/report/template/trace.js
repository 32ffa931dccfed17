// Pages over time, as a policy decided: position against time for a layer or the mean of all, and bytes
// beside it.

const bitsClass = (bits) =>
    (bits <= 0      ? 'dropped' :
         bits >= 12 ? 'var(--c0)' :
         bits >= 6  ? 'var(--c4)' :
                      'var(--c1)');

function drawTrace(trace, view, width) {
  const rows = Math.max(1, view.steps.length);
  const [left, right, top, bottom] = [56, 10, 26, 44];
  const inner = Math.min(420, Math.max(150, rows * 7));
  const height = top + inner + bottom;
  const most = Math.max(1, trace.end_tokens, ...view.steps);
  const x = (position) => left + (width - left - right) * Math.min(1, position / most);
  const y = (row) => top + inner * row / rows;
  const mean = view.layer === null;
  const picture = canvas(width, height);
  // What has been seen; pages that are held lie on top of it.
  const seen = view.steps.map((step, row) => `H${x(step).toFixed(1)}V${y(row + 1).toFixed(1)}`).join('');
  picture.append(svg('path', {class: 'dropped', d: `M${left} ${top}${seen}H${left}Z`}));
  for (const [first, length, from, to, rung, bits, score] of view.cells) {
    const box = {
      x: x(first).toFixed(2),
      y: y(from).toFixed(2),
      width: Math.max(0.5, x(first + length) - x(first) - 0.3).toFixed(2),
      height: (y(to) - y(from)).toFixed(2)
    };
    const gone = !mean && rung === 0;
    const state = mean ? `${bits.toFixed(1)} bits, mean of the layers` : gone ? 'dropped' : trace.rungs[rung];
    const look = mean ?
        {style: `fill:var(--c0);fill-opacity:${Math.min(1, Math.max(0.08, bits / 16)).toFixed(2)}`} :
        gone ? {style: 'fill:var(--c5)'} :
               {style: `fill:${bitsClass(bits)}`};
    const pattern = mean || gone || bits >= 12 ? null : 'demoted';
    picture.append(spot(
        `tokens ${count(first)} to ${count(first + length - 1)}\nat ${count(view.steps[from])} to ${
            count(view.steps[to - 1])}: ${state}\nscore ${plain(score)}`,
        ...patterned('rect', box, pattern, look), svg('rect', {class: 'ring', ...box})));
  }
  for (const at of ticks(0, most, width > 520 ? 7 : 4)) {
    picture.append(
        svg('line', {class: 'axis', x1: x(at), x2: x(at), y1: top + inner, y2: top + inner + 5}),
        svg('text', {class: 'tick', x: x(at), y: top + inner + 18, 'text-anchor': 'middle'}, count(at)));
  }
  picture.append(
      svg('text', {class: 'tick', x: (left + width - right) / 2, y: height - 4, 'text-anchor': 'middle'},
          'position of the token'),
      svg('text', {class: 'tick', x: 0, y: 12}, 'tokens seen'));
  const apart = Math.max(1, Math.ceil(rows / 10));
  for (let row = 0; row < view.steps.length; row += apart) {
    picture.append(svg(
        'text',
        {class: 'tick', x: left - 8, y: y(row) + Math.max(inner / rows / 2 + 4, 10), 'text-anchor': 'end'},
        count(view.steps[row])));
  }
  const prompt = view.steps.findIndex((step) => step > trace.prompt_tokens);
  if (prompt > 0) {
    picture.append(
        svg('line', {class: 'dashed', x1: left, x2: width - right, y1: y(prompt), y2: y(prompt)}),
        svg('text', {class: 'halo', x: width - right, y: y(prompt) - 5, 'text-anchor': 'end'},
            'end of the prompt'));
  }
  return picture;
}

function drawHeld(view, width) {
  const most = Math.max(1, ...view.f16_bytes, ...view.held_bytes);
  const chart = byteChart(width, 240, view.steps, most);
  chart.picture.append(
      chartLine(chart, view.f16_bytes, {class: 'dotted'}),
      chartLine(chart, view.target_bytes, {class: 'target'}),
      chartLine(chart, view.held_bytes, {class: 'pages'}));
  addChartMarks(
      chart,
      (i) => [`at ${count(view.steps[i])} tokens`, `held ${humanBytes(view.held_bytes[i])}`,
              `target ${humanBytes(view.target_bytes[i])}`, `f16 ${humanBytes(view.f16_bytes[i])}`]
                 .join('\n'));
  return chart.picture;
}

function traceKey(trace, view) {
  if (view.layer === null) {
    return legend([
      ...[16, 12, 8, 4].map(
          (bits) =>
              [swatch(null, {style: `fill:var(--c0);fill-opacity:${bits / 16}`}),
               bits === 16 ? '16 bits per value, mean of the layers' : String(bits)]),
      [swatch(null, {class: 'dropped'}), 'gone']
    ]);
  }
  const bitsOf = new Map(view.cells.map((cell) => [cell[4], cell[5]]));
  const entries =
      trace.rungs.map((rung, i) => [rung, bitsOf.get(i)]).filter(([rung,
                                                                   bits]) => rung && bits !== undefined);
  return legend([
    ...entries.map(
        ([rung, bits]) => [swatch(bits >= 12 ? null : 'demoted', {style: `fill:${bitsClass(bits)}`}), rung]),
    [swatch(null, {style: 'fill:var(--c5)'}), 'dropped now'], [swatch(null, {class: 'dropped'}), 'gone']
  ]);
}

const traceColumns = [
  {name: 'layer', cell: (row) => row.layer},
  {name: 'plans', cell: (row) => row.plans},
  {name: 'pages dropped', cell: (row) => row.dropped_pages},
  {name: 'demoted', cell: (row) => row.demoted_pages},
  {name: 'held', cell: (row) => humanBytes(row.held_bytes)},
  {name: 'target', cell: (row) => humanBytes(row.target_bytes)},
  {name: 'f16', cell: (row) => humanBytes(row.f16_bytes)},
  {name: 'ratio', cell: (row) => times(row.ratio)},
  {name: 'floors bind', cell: (row) => row.floors_bound},
];

function traceFigure(row) {
  const trace = row.trace;
  const name = nameOf(row);
  let view = trace.views[0];
  const key = element('div', {}, traceKey(trace, view));
  const map =
      holder(`Pages kept, demoted and dropped over time, ${name}`, (width) => drawTrace(trace, view, width));
  const held = holder(`Bytes held over time, ${name}`, (width) => drawHeld(view, width));
  const choice = element(
      'select', {},
      trace.views.map(
          (one, i) =>
              element('option', {value: i}, one.layer === null ? 'mean of all' : `layer ${one.layer}`)));
  choice.addEventListener('change', () => {
    view = trace.views[Number(choice.value)];
    key.replaceChildren(traceKey(trace, view));
    map.redraw();
    held.redraw();
  });
  const lines = legend([
    [keySample(svg('path', {class: 'pages', d: 'M0 7H22'})), 'pages held'],
    [keySample(svg('path', {class: 'target', d: 'M0 7H22'})), 'the target'],
    [keySample(svg('path', {class: 'dotted', d: 'M0 7H22'})), 'all tokens seen, in f16'],
  ]);
  const body = element(
      'div', {}, element('label', {class: 'pick'}, 'Show', choice), key,
      element(
          'div', {class: 'traced'}, map, element('div', {}, element('h3', {}, 'Bytes held'), lines, held)));
  return element(
      'figure', {'data-figure': 'trace'},
      element(
          'figcaption', {}, caseTitle(row),
          paragraph(
              'Each row is one moment at which the policy decided, from top to bottom; across it lie the tokens seen by then. Colour and pattern are what a page is stored in from then on.')),
      body,
      element(
          'details', {open: report.kind === 'trace' ? '' : null},
          element('summary', {}, 'Per layer, at its last plan'),
          makeTable(traceColumns, trace.layers, `Layers of ${name}`)));
}

function addTrace() {
  const cases = (report.cases ?? []).filter((row) => row.trace);
  if (cases.length === 0) return;
  const active = cases.filter((row) => row.trace.views.length > 0);
  const idle = cases.filter((row) => row.trace.views.length === 0);
  addSection(
      'trace', 'What the policy did', 'Policy', ...active.map(traceFigure),
      ...idle.map(
          (row) => element(
              'p', {'data-figure': 'trace'}, planName(nameOf(row)),
              ': no plan was carried out, the text stayed below the trigger.')));
}
