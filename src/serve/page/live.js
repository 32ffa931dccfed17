'use strict';
// The page of `varve serve`: a chat on the left, /cache drawn every second on the right.
const $ = (id) => document.getElementById(id);
const history = [];
let last = null;  // the answer of /cache before this one

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}
function bytes(n) {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
    if (n < 1024) return (n < 10 && unit !== 'B' ? n.toFixed(2) : Math.round(n * 10) / 10) + ' ' + unit;
    n /= 1024;
  }
  return n.toFixed(1) + ' PiB';
}
function headers() {
  const key = $('key').value;
  return Object.assign({'Content-Type': 'application/json'}, key ? {Authorization: 'Bearer ' + key} : {});
}

// --- chat ---
async function* events(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, {stream: true})).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith('data: {')) yield JSON.parse(part.slice(6));
    }
  }
}
function show(role, text) {
  const box = element('div', 'message ' + role);
  const body = element('span', '', text);
  const note = element('small');
  box.append(body, note);
  $('messages').append(box);
  box.scrollIntoView({block: 'end'});
  return {body, note};
}
async function send(text) {
  history.push({role: 'user', content: text});
  show('user', text);
  const answer = show('assistant', '');
  const response = await fetch('v1/chat/completions', {
    method: 'POST',
    headers: headers(),
    body: JSON.stringify({
      messages: history,
      stream: true,
      stream_options: {include_usage: true},
      temperature: Number($('temperature').value),
      max_tokens: Number($('max_tokens').value)
    }),
  });
  if (!response.ok) throw new Error((await response.json()).error.message);
  let timings = null;
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    if (event.timings) timings = event.timings;
    const choice = event.choices[0];
    if (choice && choice.delta.content) answer.body.textContent += choice.delta.content;
    answer.body.scrollIntoView({block: 'end'});
  }
  history.push({role: 'assistant', content: answer.body.textContent});
  if (timings) {
    answer.note.textContent = `${timings.cache_n} tokens from the cache, ${timings.prompt_n} read in ` +
        `${Math.round(timings.prompt_ms)} ms, ${timings.predicted_n} written at ` +
        `${timings.predicted_per_second.toFixed(1)} tokens/s`;
  }
}
$('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = $('text').value.trim();
  if (!text || $('send').disabled) return;
  $('text').value = '';
  $('send').disabled = true;
  try {
    await send(text);
  } catch (error) {
    history.pop();
    show('assistant', 'Error: ' + error.message);
  }
  $('send').disabled = false;
});
$('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey) {
    event.preventDefault();
    $('form').requestSubmit();
  }
});
$('new').addEventListener('click', () => {
  history.length = 0;
  $('messages').replaceChildren();
});

// --- cache ---
const HUES = {
  f32: 205,
  f16: 215,
  bf16: 225,
  q8_0: 40,
  q4_0: 15,
  q8_0r: 50,
  q4_0r: 25,
  t4: 320,
  t3: 300,
  t2: 280
};
function colour(run) {
  const rung = run.rung.split('/')[0];
  const hue = rung in HUES ? HUES[rung] : 150;
  const light = {exact: 42, open: 55, filling: 70, sealed: 50, packed: 42, idle: 34}[run.state] || 50;
  return `hsl(${hue} 60% ${light}%)`;
}
function strip(talk) {
  const row = element('div', talk.slot < 0 ? 'strip idle' : 'strip');
  const who = talk.slot < 0 ? `idle, ${talk.tokens} tokens` :
                              `slot ${talk.slot}: ${talk.reading ? 'reading' : 'writing'}, ${
                                  talk.tokens} tokens, ${talk.cached_tokens} reused`;
  row.append(element('b', '', who));
  let index = 0;
  for (const run of talk.runs) {
    for (let i = 0; i < run.pages; ++i, ++index) {
      const page = element('i', index < talk.shared_pages ? 'shared' : '');
      page.style.background = colour(run);
      page.title = `page ${index}: ${run.rung}, ${run.state}`;
      row.append(page);
    }
  }
  return row;
}
function rate(now, count, seconds) {
  const busy = last ? now[seconds] - last[seconds] : now[seconds];
  const done = last ? now[count] - last[count] : now[count];
  return busy > 0 && done > 0 ? (done / busy).toFixed(1) : '–';
}
function draw(now) {
  $('plan').textContent = `${now.plan || 'f16'}, pages of ${now.page_tokens} tokens`;
  const part = now.bytes_held / now.bytes_budget;
  $('held').style.width = Math.min(100, 100 * part) + '%';
  $('meter').setAttribute('aria-label', Math.round(100 * part) + ' % of the budget');
  $('bytes').textContent =
      `${bytes(now.bytes_held)} of ${bytes(now.bytes_budget)}; in f16, unshared: ${bytes(now.bytes_f16)}`;
  const figures = {
    'running': now.conversations.filter((c) => c.slot >= 0).length + ' of ' + now.slots,
    'waiting': now.waiting,
    'page hits': now.page_queries ? Math.round(100 * now.page_hits / now.page_queries) + ' %' : '–',
    'tokens reused': now.cached_tokens,
    'tokens/s written': rate(now, 'tokens', 'decode_s'),
    'tokens/s read': rate(now, 'prompt_tokens', 'prompt_s'),
    'pages sealed': now.pages_sealed,
    'pages demoted': now.pages_demoted,
    'pages evicted': now.pages_evicted,
    'pages put to rest': now.pages_rested,
    'pages spilled': now.pages_spilled,
  };
  $('figures').replaceChildren(...Object.entries(figures).map(([name, value]) => {
    const box = element('div');
    box.append(element('dt', '', name), element('dd', '', String(value)));
    return box;
  }));
  const kinds = new Map();
  for (const talk of now.conversations)
    for (const run of talk.runs) kinds.set(run.rung + ' ' + run.state, run);
  $('legend').replaceChildren(...[...kinds].map(([name, run]) => {
    const entry = element('span');
    const mark = element('i');
    mark.style.background = colour(run);
    entry.append(mark, name);
    return entry;
  }));
  $('strips').replaceChildren(...now.conversations.slice(0, 60).map(strip));
  last = now;
}
async function look() {
  try {
    const response = await fetch('cache', {headers: headers()});
    if (!response.ok) throw new Error((await response.json()).error.message);
    draw(await response.json());
    $('trouble').textContent = '';
  } catch (error) {
    $('trouble').textContent = 'No figures: ' + error.message;
  }
  setTimeout(look, document.hidden ? 5000 : 1000);
}
fetch('v1/models').then((r) => r.json()).then((list) => {
  $('model').textContent = list.data[0].id;
});
look();
