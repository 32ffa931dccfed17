// The headline, then every section whose data is in the document.

function machineText(machine) {
  if (!machine) return '';
  if (typeof machine === 'string') return machine;
  return [machine.cpu, machine.cores ? several(machine.cores, 'core') : '', machine.isa].filter(Boolean).join(
      ', ');
}

const modelName = () => (typeof report.model === 'string' ? report.model : report.model?.name ?? '');

function modelShape() {
  const model = report.model ?? {};
  if (model.shape) return model.shape;
  if (!model.layers) return '';
  if (!model.kv_heads) return several(model.layers, 'layer');
  return `${several(model.layers, 'layer')}, ${
      several(
          model.kv_heads * (model.group_size ?? 1),
          'head')} on ${several(model.kv_heads, 'KV head')} of ${model.key_dim}`;
}

function leadText() {
  if (report.lead) return report.lead;
  const only = report.cases?.[0];
  if (report.kind === 'compare')
    return `What ${modelName()} writes after the same ${
        several(report.prompt?.tokens, 'token')}, each time with its keys and values stored by another plan.`;
  if (report.kind === 'trace')
    return `${modelName()} with ${only?.plan}: ${several(report.tokens, 'token')}, ${
        count(report.prompt_tokens)} of them prompt, in pages of ${only?.spans?.page_tokens}.`;
  if (report.kind === 'gate') return `What the project promises, measured on ${modelName()}.`;
  return '';
}

function tile(figureText, ...text) {
  return element('div', {class: 'tile'}, element('b', {}, figureText), element('span', {}, ...text));
}

// The few figures that a reader takes away.
function tiles() {
  const rows = frontierRows().filter((row) => !row.baseline && isNumber(row.kl_mean) && isNumber(row.ratio));
  const list = [];
  const by = (key, sign) => [...rows].sort((a, b) => sign * (a[key] - b[key]))[0];
  if (rows.length > 0) {
    const small = by('ratio', -1);
    const close = by('kl_mean', 1);
    const good = rows.filter((row) => row.kl_mean <= 1e-3).sort((a, b) => b.ratio - a.ratio)[0];
    list.push(tile(
        times(small.ratio), 'the smallest cache: ', planName(small.label),
        `, KL ${divergence(small.kl_mean)}`));
    if (good && good !== small)
      list.push(tile(times(good.ratio), 'the smallest with KL up to 0.001: ', planName(good.label)));
    if (close !== good)
      list.push(tile(
          divergence(close.kl_mean), 'KL of the closest to f16: ', planName(close.label),
          `, ${times(close.ratio)}`));
  }
  if (report.kind === 'gate')
    list.unshift(
        tile(`${ofStatus(report.cases ?? [], 'passed')} of ${report.cases?.length ?? 0}`, 'cases passed'));
  const same = (report.plans ?? []).filter((row, i) => i > 0 && row.first_difference === null).length;
  if (report.kind === 'compare' && report.plans?.length > 1)
    list.push(tile(`${same} of ${report.plans.length - 1}`, 'plans wrote the same text as f16'));
  return list;
}

function addHead() {
  const origin = [
    modelName(), modelShape(), machineText(report.machine), report.version ? `varve ${report.version}` : '',
    report.date ? String(report.date).replace('T', ' ').replace('Z', ' UTC') : ''
  ].filter(Boolean);
  const head = document.getElementById('head');
  head.append(
      element('h1', {}, document.title),
      paragraph(leadText().replace(/^./, (letter) => letter.toUpperCase()), 'lead'),
      element('ul', {class: 'origin'}, origin.map((text) => element('li', {}, text))));
  if (report.kind === 'gate') head.append(verdictBanner());
  const figures = tiles();
  if (figures.length) head.append(element('div', {class: 'tiles'}, figures));
}

function addNavigation() {
  if (sections.length < 2) return;
  document.getElementById('head').append(element(
      'nav', {'aria-label': 'Sections'},
      element(
          'ul', {},
          sections.map(({id, short}) => element('li', {}, element('a', {href: `#${id}`}, short))))));
}

function addOrigin() {
  const facts = [
    ['model', modelName()], ['shape', modelShape()], ['sampling', report.sampling],
    ['machine', machineText(report.machine)], ['version', report.version ? `varve ${report.version}` : ''],
    ['date', report.date], ['took', isNumber(report.seconds) ? `${report.seconds.toFixed(0)} s` : '']
  ];
  for (const [name, value] of Object.entries(report.settings ?? {}))
    if (typeof value !== 'object') facts.push([name.replace(/_/g, ' '), plain(value)]);
  const list = facts.filter(([, value]) => value !== undefined && value !== null && value !== '')
                   .flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]);
  if (report.command)
    list.push(element('dt', {}, 'command'), element('dd', {}, element('code', {}, report.command)));
  const content = [element('div', {class: 'card'}, element('dl', {}, list))];
  if (report.prompts?.length) {
    const columns = ['name', 'bucket', 'tokens', 'turns', 'hash', 'source'].map(
        (name) => ({
          name,
          kind: name === 'tokens' || name === 'turns' ? undefined : 'text',
          cell: (row) => row[name]
        }));
    content.push(element(
        'div', {class: 'card'}, element('h3', {}, 'Prompts'), makeTable(columns, report.prompts, 'Prompts')));
  }
  addSection('origin', 'How this was made', 'Origin', ...content);
}

addPatterns();
addHead();
for (const add
         of [addGate, addFrontier, addPlans, addMemory, addSpeed, addTokens, addTrace, addLossless, addTexts,
             addSpread, addOrigin])
  add();
addNavigation();
document.documentElement.dataset.ready = 'yes';
