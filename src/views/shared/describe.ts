import { formatBytes, formatInteger } from '../../charts';
import type { FlagInfo, Hello, Pass } from '../../protocol/messages.generated';
import type { ITensorResult } from '../../store/source';
import type { Translate } from './translate';

/** A compressor's canonical text in parts, such as `Tile(tiles=96, reduction='mean')`. */
export interface ICompressorText {
  name: string;
  params: Readonly<Record<string, string>>;
}

/** Read the canonical text of a compressor. Commas inside quotes and brackets belong to a value. */
export function readCompressor(text: string): ICompressorText {
  const match = /^(\w+)(?:\((.*)\))?$/s.exec(text.trim());
  const params: Record<string, string> = {};
  for (const part of parts(match?.[2] ?? '')) {
    const at = part.indexOf('=');
    const name = part.slice(0, Math.max(0, at)).trim();
    if (/^\w+$/.test(name)) {
      params[name] = part
        .slice(at + 1)
        .trim()
        .replace(/^(['"])(.*)\1$/s, '$2');
    }
  }
  return { name: match?.[1] ?? text, params };
}

const CLOSED_BY: ReadonlyMap<string, string> = new Map(
  ['""', "''", '()', '[]'].map(([open = '', close = '']) => [open, close])
);

/** A text cut at its commas, in one go; what is open until a character comes is one piece up to there. */
function parts(text: string): string[] {
  const found = [''];
  let close: string | undefined;
  for (const letter of text) {
    if (letter === ',' && close === undefined) {
      found.push('');
    } else {
      found[found.length - 1] += letter;
      close = letter === close ? undefined : (close ?? CLOSED_BY.get(letter));
    }
  }
  return found;
}

/**
 * Say in words what the compressed numbers are: `mean of 96 tiles`.
 *
 * @param tiles How many there are in fact: an axis that cannot be cut into as many as were asked for has fewer.
 */
export function compressorWords(text: string, t: Translate, tiles?: number): string {
  const { name, params } = readCompressor(text);
  switch (name) {
    case 'Tile': {
      const reduction = (params['reduction'] ?? 'mean').replace(/^(\w+)\(data\)$/, '$1');
      return t(
        '%1 of %2 tiles',
        reduction.replace(/^data\.(\w+)\(\)$/, '$1'),
        tiles ?? params['tiles'] ?? '?'
      );
    }
    case 'NoOp':
      return t('every value');
    case 'Projection':
      return t('projected on %1', params['vectors'] ?? t('vectors'));
    default:
      return text;
  }
}

/** Name the last axis after compression: a tile, a vector, or what it was. */
export function lastAxis(text: string, before: string): string {
  const { name } = readCompressor(text);
  return name === 'Tile' ? 'tile' : name === 'Projection' ? 'vector' : before;
}

/** Return what the run says of a flag. */
export function flagInfo(hello: Hello | null, flag: string): FlagInfo | undefined {
  return hello?.flags.find(each => each.name === flag);
}

/** Name a flag in words, with its part where it has several; its gradient where that is drawn. */
export function flagWords(
  hello: Hello | null,
  flag: string,
  part: string | null,
  t: Translate,
  pass: Pass = 'forward'
): string {
  const info = flagInfo(hello, flag);
  const title = info?.title ?? flag;
  const words = part ? t('%1, part %2', title, part) : title;
  return pass === 'backward' ? t('Gradient of %1', words) : words;
}

/**
 * Say what a bounded store has thinned out of what is drawn: rows that are only statistics, where tensors are drawn, and tensors, where
 * only these can enter.
 */
export function thinnedWords({ rows, kept }: ITensorResult, t: Translate): string[] {
  const lacking = (kept?.reducedRows ?? 0) - rows.filter(row => row.reduced).length;
  return kept && kept.thinnedTo !== null && lacking > 0
    ? [
        t(
          'Up to step %1 tensors are thinned out to stay within memory: of every few the ones with the least and the greatest rms are kept (%2 of %3).',
          formatInteger(kept.thinnedTo),
          formatBytes(kept.bytes),
          formatBytes(kept.limitBytes)
        )
      ]
    : [];
}

/** Say in which tiers a bounded store keeps what a history shows, and what they take; empty for sources that keep everything. */
export function tierWords({ rows, kept, evictedRows }: ITensorResult, t: Translate): string[] {
  if (!kept) {
    return [];
  }
  const bytes = t('%1 of %2', formatBytes(kept.bytes), formatBytes(kept.limitBytes));
  const first = rows.reduce((least, row) => Math.min(least, row.step), Infinity);
  if (kept.thinnedTo === null) {
    return [t('Every tensor since step %1 is kept in this page (%2).', formatInteger(first), bytes)];
  }
  return [
    t(
      'Kept in this page (%1): every tensor after step %2; of earlier ones those with the least and the greatest rms of every few, and of %3 more their statistics.',
      bytes,
      formatInteger(kept.thinnedTo),
      formatInteger(kept.reducedRows)
    ),
    ...(evictedRows > 0
      ? [t('The oldest are statistics of the extremes only: %1 rows are gone.', formatInteger(evictedRows))]
      : [])
  ];
}

/** What was left out between the training and the picture. */
export interface IOmitted {
  sampledEvery?: number;
  evictedRows?: number;
  decimatedFrom?: number;
}

/** Say what was sampled or given up; empty when the picture is literal. */
export function omissionWords(omitted: IOmitted, t: Translate): string[] {
  const lines: string[] = [];
  if ((omitted.sampledEvery ?? 1) > 1) {
    lines.push(
      t(
        'Of the traced steps one in %1 is shown: the others were not sent.',
        formatInteger(omitted.sampledEvery ?? 1)
      )
    );
  }
  if ((omitted.evictedRows ?? 0) > 0) {
    lines.push(t('Older rows given up to stay within memory: %1.', formatInteger(omitted.evictedRows ?? 0)));
  }
  if ((omitted.decimatedFrom ?? 0) > 0) {
    lines.push(
      t('Drawn from %1 points, keeping every minimum and maximum.', formatInteger(omitted.decimatedFrom ?? 0))
    );
  }
  return lines;
}

/** Make the white space of a token visible. */
export function tokenText(label: string): string {
  return label.replace(/ /g, '␣').replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/\r/g, '␍');
}
