// Which tokens each layer still has: a row per layer, positions from left to right.

const fates = {
  kept: 'kept',
  demoted: 'demoted to a cheaper rung',
  folded: 'folded: several tokens share a row',
  dropped: 'dropped'
};

function tokenCases() {
  return (report.cases ?? [])
      .filter((row) => row.spans?.layers?.some((layer) => layer.spans.some((span) => span.fate !== 'kept')));
}

function drawTokens(spans, width) {
  const layers = spans.layers;
  const [left, right, top, bottom] = [34, 10, 20, 44];
  const high = Math.min(22, Math.max(8, Math.round(260 / layers.length)));
  const height = top + high * layers.length + bottom;
  const x = (position) => left + (width - left - right) * (position / Math.max(1, spans.end_tokens));
  const picture = canvas(width, height);
  picture.append(svg('text', {class: 'tick', x: 0, y: 12}, 'layer'));
  layers.forEach((layer, i) => {
    const y = top + high * i;
    if (high >= 12 || i % 4 === 0)
      picture.append(
          svg('text', {class: 'tick', x: left - 8, y: y + high / 2 + 4, 'text-anchor': 'end'}, layer.layer));
    for (const span of layer.spans) {
      const box = {
        x: x(span.begin).toFixed(2),
        y,
        width: Math.max(0.6, x(span.end) - x(span.begin)).toFixed(2),
        height: high - 2
      };
      const rung = span.rung ? ` in ${span.rung}` : '';
      picture.append(spot(
          `layer ${layer.layer}, tokens ${count(span.begin)} to ${count(span.end - 1)}\n${
              fates[span.fate] ?? span.fate}${rung}`,
          ...patterned('rect', box, span.fate, {class: span.fate}), svg('rect', {class: 'ring', ...box})));
    }
  });
  const end = top + high * layers.length;
  const prompt = spans.prompt_tokens;
  if (prompt > 0 && prompt < spans.end_tokens) {
    picture.append(
        svg('line', {class: 'dashed', x1: x(prompt), x2: x(prompt), y1: top - 6, y2: end + 2}),
        svg('text', {class: 'tick', x: x(prompt), y: 12, 'text-anchor': 'end'}, 'end of the prompt'));
  }
  for (const at of ticks(0, spans.end_tokens, width > 600 ? 8 : 4)) {
    picture.append(
        svg('line', {class: 'axis', x1: x(at), x2: x(at), y1: end + 2, y2: end + 7}),
        svg('text', {class: 'tick', x: x(at), y: end + 20, 'text-anchor': 'middle'}, count(at)));
  }
  picture.append(
      svg('text', {class: 'tick', x: (left + width - right) / 2, y: height - 4, 'text-anchor': 'middle'},
          'position of the token'));
  return picture;
}

// Tokens of each fate in one layer.
function fateSums(layer) {
  const sums = {kept: 0, demoted: 0, folded: 0, dropped: 0};
  for (const span of layer.spans) sums[span.fate] = (sums[span.fate] ?? 0) + span.end - span.begin;
  return sums;
}

// "2–9" for 2, 3, … 9.
function ranges(numbers) {
  const parts = [];
  for (const number of numbers) {
    const last = parts[parts.length - 1];
    if (last && last[1] === number - 1)
      last[1] = number;
    else
      parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(', ');
}

function fateSentence(spans) {
  const layers = spans.layers.map((layer) => ({number: layer.layer, sums: fateSums(layer)}));
  const words = [];
  for (const [fate, verb] of [
           ['dropped', 'dropped'], ['demoted', 'demoted'], ['folded', 'folded into fewer rows']]) {
    const there = layers.filter((layer) => layer.sums[fate] > 0);
    if (there.length === 0) continue;
    const mean = there.reduce((sum, layer) => sum + layer.sums[fate], 0) / there.length;
    words.push(`layers ${ranges(there.map((layer) => layer.number))}: ${
        percent(mean / spans.end_tokens, 0)} of the tokens ${verb}`);
  }
  return words.join('; ');
}

const fateColumns = [
  {name: 'layer', cell: (row) => row.layer},
  {name: 'kept', cell: (row) => count(row.kept)},
  {name: 'demoted', cell: (row) => count(row.demoted)},
  {name: 'folded', cell: (row) => count(row.folded)},
  {name: 'dropped', cell: (row) => count(row.dropped)},
];

function addTokens() {
  const cases = tokenCases();
  if (cases.length === 0) return;
  const used = new Set(
      cases.flatMap((row) => row.spans.layers.flatMap((layer) => layer.spans.map((span) => span.fate))));
  const key = legend(Object.keys(fates)
                         .filter((fate) => used.has(fate))
                         .map((fate) => [swatch(fate, {class: fate}), fates[fate]]));
  const dropped = used.has('dropped') ?
      'A dropped token is gone from that layer for good: attention no longer sees its key and value there, and no later step brings them back. Other layers may still have them, and what the text after it has already taken from it stays.' :
      '';
  const pictures = cases.map((row) => {
    const name = nameOf(row);
    const sums = row.spans.layers.map((layer) => ({layer: layer.layer, ...fateSums(layer)}));
    return element(
        'figure', {'data-figure': 'tokens'},
        element(
            'figcaption', {}, caseTitle(row),
            paragraph(`After ${several(row.spans.end_tokens, 'token')}; ${fateSentence(row.spans)}.`)),
        holder(`Tokens kept, demoted or dropped per layer, ${name}`, (width) => drawTokens(row.spans, width)),
        foldedTable(fateColumns, sums, `Tokens by fate, ${name}`));
  });
  addSection(
      'tokens', 'Which tokens stayed', 'Tokens',
      paragraph(`Each row is a layer, each column a position of the text. ${dropped}`, 'quiet'), key,
      ...pictures);
}
