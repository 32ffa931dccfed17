// Memory over steps: areas by rung and page state, one picture per plan, all on one scale.

const stateWords = {
  filling: 'filling: the page that grows',
  full: 'full: exact, waits to be sealed',
  sealed: 'sealed: encoded once',
  packed: 'packed: sealed, and compressed without loss'
};

function memoryCases() {
  return (report.cases ?? []).filter((row) => row.memory?.samples?.length > 1);
}

const heldOf = (sample) =>
    (isNumber(sample.held_bytes) ? sample.held_bytes : sample.bytes.reduce((sum, bytes) => sum + bytes, 0));

function sampleText(memory, sample) {
  const parts =
      memory.series.map((series, i) => [series, sample.bytes[i]]).filter(([, bytes]) => bytes > 0).reverse();
  return `after ${several(sample.tokens, 'token')}\nheld ${humanBytes(heldOf(sample))}, in f16 ${
      humanBytes(sample.f16_bytes)}\n${
      parts.map(([series, bytes]) => `${series.rung} ${series.state} ${humanBytes(bytes)}`).join('\n')}`;
}

// The areas of the series, each on top of the one before; those that are high enough have their name in them.
function addAreas(chart, memory, nameEnd) {
  let under = memory.samples.map(() => 0);
  const names = [];
  memory.series.forEach((series, i) => {
    const over = under.map((bytes, at) => bytes + (memory.samples[at].bytes[i] ?? 0));
    const edge = [...chartPoints(chart, over), ...chartPoints(chart, under).reverse()];
    const colour = {style: `fill:${rungColour(series.rung)}`};
    chart.picture.append(
        ...patterned('path', {d: `M${edge.join('L')}Z`}, series.state, colour).filter(Boolean));
    const [low, high] = [under, over].map((edges) => chart.y(edges[edges.length - 1]));
    if (low - high > 20) {
      const place = {class: 'plan halo', x: nameEnd, y: (low + high) / 2 + 5, 'text-anchor': 'end'};
      names.push(svg('text', place, series.rung));
    }
    under = over;
  });
  return names;
}

function drawMemory(memory, most, width) {
  const samples = memory.samples;
  const chart = byteChart(width, 184, samples.map((sample) => sample.tokens), most);
  const prompt = memory.prompt_tokens ?? report.prompt?.tokens;
  const inside = prompt > samples[0].tokens && prompt < samples[samples.length - 1].tokens;
  const end = inside ? chart.x(prompt) : chart.end;
  const names = addAreas(chart, memory, chart.end - end < 60 ? end - 6 : chart.end - 8);
  chart.picture.append(
      chartLine(chart, samples.map(heldOf), {class: 'held'}),
      chartLine(chart, samples.map((sample) => sample.f16_bytes), {class: 'dotted'}));
  if (inside) {
    const line = {class: 'axis', x1: end, x2: end, y1: chart.top, y2: chart.floor, 'stroke-dasharray': '3 3'};
    chart.picture.append(svg('line', line));
  }
  chart.picture.append(...names);
  addChartMarks(chart, (i) => sampleText(memory, samples[i]));
  return chart.picture;
}

function addMemory() {
  const cases = memoryCases();
  if (cases.length === 0) return;
  const all = cases.flatMap((row) => row.memory.samples);
  const most = Math.max(...all.map((sample) => Math.max(heldOf(sample), sample.f16_bytes ?? 0)));
  const rungs = [];
  const used = [];
  for (const series of cases.flatMap((row) => row.memory.series)) {
    if (!rungs.includes(series.rung)) rungs.push(series.rung);
    if (!used.includes(series.state)) used.push(series.state);
  }
  rungs.sort((a, b) => (b === 'f16') - (a === 'f16'));
  const key = element(
      'div', {}, legend([
        ...rungs.map((rung) => [swatch(null, {style: `fill:${rungColour(rung)}`}), rung]),
        [keySample(svg('path', {class: 'held', d: 'M0 7H22'})), 'held in memory, with tables'],
        [keySample(svg('path', {class: 'dotted', d: 'M0 7H22'})), 'the same tokens in f16'],
        [
          keySample(svg('path', {class: 'axis', d: 'M11 0V14', 'stroke-dasharray': '3 3'})),
          'end of the prompt'
        ],
      ]),
      legend(Object.keys(stateWords)
                 .filter((state) => used.includes(state))
                 .map((state) => [swatch(state, {style: 'fill:var(--c7)'}), stateWords[state]])));
  const columns = (memory) =>
      [{name: 'tokens', cell: (row) => count(row.tokens)},
       {name: 'held', cell: (row) => humanBytes(heldOf(row))},
       {name: 'f16', cell: (row) => humanBytes(row.f16_bytes)},
       ...memory.series.map(
           (series, i) =>
               ({name: `${series.rung} ${series.state}`, cell: (row) => humanBytes(row.bytes[i])})),
  ];
  const pictures = cases.map((row) => {
    const name = nameOf(row);
    const memory = row.memory;
    const last = memory.samples[memory.samples.length - 1];
    const apart = Math.ceil(memory.samples.length / 24);
    const some = memory.samples.filter((sample, i) => i % apart === 0 || sample === last);
    return element(
        'figure', {'data-figure': 'memory'},
        element(
            'figcaption', {}, caseTitle(row),
            paragraph(`${humanBytes(heldOf(last))} at the end, f16 ${humanBytes(last.f16_bytes)}`)),
        holder(`Memory over tokens seen, ${name}`, (width) => drawMemory(memory, most, width)),
        foldedTable(columns(memory), some, `Memory over steps, ${name}`));
  });
  addSection(
      'memory', 'Memory over steps', 'Memory',
      paragraph(
          'What pages hold as tokens come in: colour is the rung, pattern the page’s state, youngest on top. All pictures have one scale.',
          'quiet'),
      key, element('div', {class: 'few'}, pictures));
}
