import { formatInteger, visible } from '../charts/format';
import type { ViewOptions } from '../protocol/views.generated';
import { toCode } from '../views/code';
import type { IStill } from '../views/still';
import type { Translate } from '../views/shared/translate';
import { dateText, type IFacts } from './facts';
import type { IPageData } from './stored-run';

/**
 * What `npm run build:bundles` made for pages: the script that mounts the views, and the digests by which a
 * page allows it.
 */
export interface IPageParts {
  readonly script: string;
  /** SHA-256 in base64: of the script, and of what it unpacks. */
  readonly digests: readonly string[];
  readonly style: string;
}

/** A still with its pictures as SVG; `dark` where it cannot follow the page's colours by itself. */
export interface IDrawn extends Omit<IStill, 'recipe'> {
  readonly light: string;
  readonly dark: string | null;
}

export interface IFigure {
  readonly options: ViewOptions;
  readonly stills: readonly IDrawn[];
  /** What the file holds of it. */
  readonly notes: readonly string[];
}

export interface IPage {
  readonly title: string;
  readonly facts: IFacts;
  readonly figures: readonly IFigure[];
  readonly data: IPageData;
  readonly parts: IPageParts;
  readonly version: string;
  /** Seconds since the epoch. */
  readonly made: number;
  /** A tag of HTML, and what translates into it. */
  readonly language: string;
  readonly t: Translate;
}

/** Write a page that is readable without its script, live with it, and sends no request. */
export function pageText(page: IPage): string {
  const { title, facts, figures, data, parts, version, made, language, t } = page;
  const digests = parts.digests.map(digest => `'sha256-${digest}'`).join(' ');
  const policy = [
    "default-src 'none'",
    `script-src ${digests}`,
    "style-src 'unsafe-inline'",
    'img-src data: blob:',
    "base-uri 'none'",
    "form-action 'none'"
  ].join('; ');
  const madeBy = escape(t('Made %1 with Megalens %2.', dateText(made), version));
  const terms = facts.facts
    .map(([term, text]) => `<dt>${escape(term)}</dt><dd>${escape(text)}</dd>`)
    .join('');
  return `<!DOCTYPE html>
<html lang="${escape(language)}" class="jp-MegalensAlone">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="Megalens ${escape(version)}">
<title>${escape(title)}</title>
<style>
${parts.style}</style>
</head>
<body>
<main>
<header>
<h1>${escape(title)}</h1>
<p>${escape(t('Run %1,', facts.name))} <code>${escape(facts.id)}</code>. ${madeBy}</p>
</header>
<dl class="facts">${terms}</dl>
${figures.map((each, index) => figureText(each, index, t)).join('')}
${tracedText(facts, t)}${changesText(facts, t)}
<footer>${madeBy} ${escape(t('This page holds all that it shows: it asks nothing of a network or a kernel. Values of tensors have three digits in it, statistics nine.'))}</footer>
</main>
<script type="application/json" id="megalens-data">${jsonText(data)}</script>
<script>${parts.script}</script>
</body>
</html>
`;
}

/** Write JSON so that it can stand inside a script element. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value)
    .replace(/</g, '\\u003c')
    .replace(/\u2028/g, '\\u2028')
    .replace(/\u2029/g, '\\u2029');
}

/**
 * Write text as HTML, in elements and in attributes. Control characters, which a page may not hold, become
 * visible ones.
 */
export function escape(text: string): string {
  const names = new Map([
    ['&', '&amp;'],
    ['<', '&lt;'],
    ['>', '&gt;'],
    ['"', '&quot;'],
    ["'", '&#x27;']
  ]);
  return visible(text).replace(/[&<>"']/g, letter => names.get(letter) ?? letter);
}

export function storedWords(stored: readonly number[], all: number, t: Translate): string {
  const steps = stored.map(formatInteger);
  const last = steps.pop() ?? '';
  const words =
    steps.length === 0 ? t('step %1', last) : t('steps %1', t('%1 and %2', steps.join(', '), last));
  return t(
    'This page holds %1, %2 of %3 traced steps; the others were left out.',
    words,
    stored.length,
    formatInteger(all)
  );
}

function figureText({ options, stills, notes }: IFigure, index: number, t: Translate): string {
  const code = `<details><summary>${escape(t('Code of this view'))}</summary><code>${escape(toCode(options))}</code></details>`;
  const held = notes.length > 0 ? `<p class="caption">${escape(notes.join(' '))}</p>` : '';
  return `<figure id="view-${index}"><div class="still">${stills.map(stillText).join('')}</div>${held}${code}</figure>\n`;
}

function stillText({ title, caption, summary, light, dark }: IDrawn): string {
  const head = `<figcaption><h2>${escape(title)}</h2></figcaption>`;
  const lines = escape(caption.join(' '));
  if (light === '') {
    return `${head}<p class="nothing">${lines}</p>`;
  }
  // The element around them says what they show; of their marks a screen reader would hear hundreds.
  const [day, night] = [light, dark].map(svg => svg?.replace('<svg ', '<svg aria-hidden="true" '));
  const picture =
    dark === null ? day : `<div class="on-light">${day}</div><div class="on-dark">${night}</div>`;
  return [
    head,
    `<div class="picture" role="img" aria-label="${escape(summary || title)}">${picture}</div>`,
    lines && `<p class="caption">${lines}</p>`,
    summary && `<p class="summary">${escape(summary)}</p>`
  ].join('');
}

function tracedText({ traced }: IFacts, t: Translate): string {
  return traced.length === 0
    ? ''
    : `<section><h2>${escape(t('What was traced'))}</h2><div class="wide">${tableText([t('Trace point'), t('Layers'), t('Compressor'), t('Steps')], traced)}</div></section>\n`;
}

function changesText({ changes, events }: IFacts, t: Translate): string {
  if (changes.length === 0 && events === '') {
    return '';
  }
  const table = changes.length > 0 ? tableText([t('From step'), t('Change')], changes) : '';
  const also = events === '' ? '' : `<p class="caption">${escape(t('Also: %1.', events))}</p>`;
  return `<section><h2>${escape(t('Changes during the run'))}</h2>${table}${also}</section>\n`;
}

function tableText(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[], tag: string): string =>
    `<tr>${cells.map(cell => `<${tag}>${escape(cell)}</${tag}>`).join('')}</tr>`;
  return `<table>${line(head, 'th')}${rows.map(row => line(row, 'td')).join('')}</table>`;
}
