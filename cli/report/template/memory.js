// Memory over steps: areas by rung and page state, one picture per plan, all on one scale.

const stateWords = { filling: 'filling: the page that grows', full: 'full: exact, waits to be sealed', sealed: 'sealed: encoded once', packed: 'packed: sealed, and compressed without loss' };

function memoryCases() {
  return (report.cases ?? []).filter((row) => row.memory?.samples?.length > 1);
}

const heldOf = (sample) => (isNumber(sample.held_bytes) ? sample.held_bytes : sample.bytes.reduce((sum, bytes) => sum + bytes, 0));

function sampleText(memory, sample) {
  const parts = memory.series.map((series, i) => [series, sample.bytes[i]]).filter(([, bytes]) => bytes > 0).reverse();
  return `after ${several(sample.tokens, 'token')}\nheld ${humanBytes(heldOf(sample))}, in f16 ${humanBytes(sample.f16_bytes)}\n${parts.map(([series, bytes]) => `${series.rung} ${series.state} ${humanBytes(bytes)}`).join('\n')}`;
}

function drawMemory(memory, most, width) {
  const height = 184;
  const [left, right, top, bottom] = [54, 8, 8, 40];
  const samples = memory.samples;
  const last = samples[samples.length - 1].tokens;
  const first = samples[0].tokens;
  const x = (tokens) => left + (width - left - right) * (last > first ? (tokens - first) / (last - first) : 0);
  const y = (bytes) => top + (height - top - bottom) * (1 - bytes / most);
  const picture = canvas(width, height);
  for (const at of byteTicks(most, 4)) {
    picture.append(svg('line', { class: 'grid', x1: left, x2: width - right, y1: y(at), y2: y(at) }), svg('text', { class: 'tick', x: left - 6, y: y(at) + 4, 'text-anchor': 'end' }, shortBytes(at)));
  }
  const prompt = memory.prompt_tokens ?? report.prompt?.tokens;
  const nameEnd = prompt > first && prompt < last && width - right - x(prompt) < 60 ? x(prompt) - 6 : width - right - 8;
  const floor = samples.map(() => 0);
  const names = [];
  memory.series.forEach((series, i) => {
    const under = samples.map((sample, at) => `${x(sample.tokens).toFixed(1)} ${y(floor[at]).toFixed(1)}`).reverse();
    const before = floor[samples.length - 1];
    samples.forEach((sample, at) => { floor[at] += sample.bytes[i] ?? 0; });
    // Areas that are high enough say themselves what they are.
    const [low, high] = [y(before), y(floor[samples.length - 1])];
    if (low - high > 20) names.push(svg('text', { class: 'plan halo', x: nameEnd, y: (low + high) / 2 + 5, 'text-anchor': 'end' }, series.rung));
    const over = samples.map((sample, at) => `${x(sample.tokens).toFixed(1)} ${y(floor[at]).toFixed(1)}`);
    picture.append(...patterned('path', { d: `M${over.join('L')}L${under.join('L')}Z` }, series.state, { style: `fill:${rungColour(series.rung)}` }).filter(Boolean));
  });
  const line = (value) => `M${samples.map((sample) => `${x(sample.tokens).toFixed(1)} ${y(Math.min(value(sample), most)).toFixed(1)}`).join('L')}`;
  picture.append(svg('path', { class: 'held', d: line(heldOf) }), svg('path', { class: 'dotted', d: line((sample) => sample.f16_bytes) }));
  if (prompt > first && prompt < last) {
    picture.append(svg('line', { class: 'axis', x1: x(prompt), x2: x(prompt), y1: top, y2: height - bottom, 'stroke-dasharray': '3 3' }));
  }
  for (const at of ticks(first, last, width > 420 ? 6 : 4)) {
    picture.append(svg('text', { class: 'tick', x: x(at), y: height - bottom + 16, 'text-anchor': 'middle' }, count(at)));
  }
  picture.append(svg('line', { class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }), svg('text', { class: 'tick', x: (left + width - right) / 2, y: height - 3, 'text-anchor': 'middle' }, 'tokens seen'));
  picture.append(...names);
  const stops = Math.min(samples.length, 24);
  for (let i = 0; i < stops; ++i) {
    const sample = samples[Math.round(i * (samples.length - 1) / Math.max(1, stops - 1))];
    const at = x(sample.tokens);
    const step = (width - left - right) / stops;
    picture.append(spot(sampleText(memory, sample), svg('rect', { class: 'hit', x: at - step / 2, y: top, width: step, height: height - top - bottom }), svg('line', { class: 'ring', x1: at, x2: at, y1: top, y2: height - bottom })));
  }
  return picture;
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
  const key = element('div', {}, legend([
    ...rungs.map((rung) => [swatch(null, { style: `fill:${rungColour(rung)}` }), rung]),
    [svg('svg', { viewBox: '0 0 22 14', 'aria-hidden': 'true' }, svg('path', { class: 'held', d: 'M0 7H22' })), 'held in memory, with tables'],
    [svg('svg', { viewBox: '0 0 22 14', 'aria-hidden': 'true' }, svg('path', { class: 'dotted', d: 'M0 7H22' })), 'the same tokens in f16'],
    [svg('svg', { viewBox: '0 0 22 14', 'aria-hidden': 'true' }, svg('path', { class: 'axis', d: 'M11 0V14', 'stroke-dasharray': '3 3' })), 'end of the prompt'],
  ]), legend(Object.keys(stateWords).filter((state) => used.includes(state)).map((state) => [swatch(state, { style: 'fill:var(--c7)' }), stateWords[state]])));
  const columns = (memory) => [
    { name: 'tokens', cell: (row) => count(row.tokens) },
    { name: 'held', cell: (row) => humanBytes(heldOf(row)) },
    { name: 'f16', cell: (row) => humanBytes(row.f16_bytes) },
    ...memory.series.map((series, i) => ({ name: `${series.rung} ${series.state}`, cell: (row) => humanBytes(row.bytes[i]) })),
  ];
  const pictures = cases.map((row) => {
    const name = nameOf(row);
    const memory = row.memory;
    const last = memory.samples[memory.samples.length - 1];
    const apart = Math.ceil(memory.samples.length / 24);
    const some = memory.samples.filter((sample, i) => i % apart === 0 || sample === last);
    return element('figure', { 'data-figure': 'memory' },
      element('figcaption', {}, element('h3', {}, row.plan && row.plan !== name ? [name, ' '] : null, planName(row.plan ?? name)), paragraph(`${humanBytes(heldOf(last))} at the end, f16 ${humanBytes(last.f16_bytes)}`)),
      holder(`Memory over tokens seen, ${name}`, (width) => drawMemory(memory, most, width)), foldedTable(columns(memory), some, `Memory over steps, ${name}`));
  });
  addSection('memory', 'Memory over steps', 'Memory',
    paragraph('What pages hold as tokens come in: colour is the rung, pattern the page’s state, youngest on top. All pictures have one scale.', 'quiet'), key, element('div', { class: 'few' }, pictures));
}
