import { own } from '../../protocol/records';
import { translatedLater } from '../../protocol/texts';
import { formatBytes, formatInteger } from '../../charts';
import type { Hello, FlagInfo, Pass, Phase } from '../../protocol/messages.generated';
import type { ITensorShape, IKept } from '../../store/tensor-data';
import { listWords } from './layers';
import type { Translate } from './translate';

/** Name a rank with its coordinate in the parallel layout: `rank 2 (dp 1)`. */
export function rankName(rank: number, hello: Hello | null, t: Translate): string {
  const layout = hello?.layout;
  const coordinate = layout?.ranks?.find(each => each.rank === rank);
  const where = (['tp', 'pp', 'dp'] as const)
    .filter(axis => coordinate && (layout?.[axis] ?? 1) > 1)
    .map(axis => `${axis} ${coordinate?.[axis]}`);
  return where.length > 0 ? t('rank %1 (%2)', rank, where.join(', ')) : t('rank %1', rank);
}

/**
 * Say whose rows are drawn where a run has several ranks.
 *
 * @param drawn - Ranks of the rows, ascending.
 */
export function rankWords(
  drawn: readonly number[],
  shape: ITensorShape,
  rank: number | null,
  hello: Hello | null,
  t: Translate
): string[] {
  const [first = 0] = drawn;
  if ((shape.ranks ?? []).length < 2 && first === 0) {
    return [];
  }
  const replicas = (hello?.layout?.dp ?? 1) > 1;
  if (rank !== null || drawn.length === 1) {
    const name = rankName(first, hello, t);
    return [replicas ? t('Replica of %1.', name) : t('From %1.', name)];
  }
  return [
    replicas
      ? t('From ranks %1: of each layer the replica of the lowest rank.', listWords(drawn, t))
      : t('From ranks %1.', listWords(drawn, t))
  ];
}

/** A compressor's canonical text in parts, such as `Tile(tiles=96, reduction='mean')`. */
export interface ICompressorText {
  name: string;
  params: Readonly<Record<string, string>>;
}

/**
 * Read the canonical text of a compressor, in one pass. Commas inside quotes and brackets belong to a value.
 */
export function readCompressor(text: string): ICompressorText {
  const trimmed = text.trim();
  const opening = trimmed.indexOf('(');
  const name = opening < 0 ? trimmed : trimmed.slice(0, opening);
  if (!/^\w+$/.test(name) || (opening >= 0 && !trimmed.endsWith(')'))) {
    return { name: text, params: {} };
  }
  const params: [string, string][] = [];
  for (const part of opening < 0 ? [] : partsOf(trimmed.slice(opening + 1, -1))) {
    const sign = part.indexOf('=');
    const key = part.slice(0, Math.max(sign, 0)).trim();
    const value = part.slice(sign + 1).trim();
    if (/^\w+$/.test(key) && value !== '') {
      const quoted = value.length > 1 && /^['"]/.test(value) && value.endsWith(value.charAt(0));
      params.push([key, quoted ? value.slice(1, -1) : value]);
    }
  }
  return { name, params: Object.fromEntries(params) };
}

/** Cut at the commas that stand in no quotes and no brackets. */
function partsOf(text: string): string[] {
  const parts: string[] = [];
  let begin = 0;
  let depth = 0;
  let quote = '';
  for (let at = 0; at < text.length; at++) {
    const sign = text.charAt(at);
    if (quote !== '') {
      at += sign === '\\' ? 1 : 0;
      quote = sign === quote ? '' : quote;
    } else if (sign === "'" || sign === '"') {
      quote = sign;
    } else if (sign === '(' || sign === '[') {
      depth++;
    } else if (sign === ')' || sign === ']') {
      depth--;
    } else if (sign === ',' && depth <= 0) {
      parts.push(text.slice(begin, at));
      begin = at + 1;
    }
  }
  return [...parts, text.slice(begin)];
}

/**
 * Say in words what the compressed numbers are: `mean of 96 tiles`.
 *
 * @param tiles How many there are in fact: an axis that cannot be cut into as many as were asked for has
 * fewer.
 */
export function compressorWords(text: string, t: Translate, tiles?: number): string {
  // What a recording answers more coarsely than it has says of what: `Peaks(cells=64) of Peaks(cells=256)`.
  const { name, params } = readCompressor(text.replace(/\) of \w+\(.*$/, ')'));
  switch (name) {
    case 'Tile': {
      const reduction = (params['reduction'] ?? 'mean').replace(/^(\w+)\(data\)$/, '$1');
      const count = String(tiles ?? params['tiles'] ?? '?');
      const what = reduction.replace(/^data\.(\w+)\(\)$/, '$1');
      return t(count === '1' ? '%1 of %2 tile' : '%1 of %2 tiles', what, count);
    }
    case 'NoOp':
      return t('no compression');
    case 'Peaks':
      return t('largest of blocks, at most %1 along an axis', params['cells'] ?? '?');
    case 'Histogram': {
      const bins = String(2 * Number(params['bins'] ?? NaN) + 1);
      return params['log'] === 'False'
        ? t('counts in %1 bins', bins)
        : t('counts in %1 logarithmic bins', bins);
    }
    case 'Projection':
      return t('projected on %1', params['vectors'] ?? t('vectors'));
    default:
      return text;
  }
}

/**
 * Say what was kept of the tensors, and how that is asked for in code; of several compressors one after the
 * other.
 */
export function compressorCaption(compressors: readonly string[], t: Translate): string {
  const words = compressors.map(each => {
    const said = compressorWords(each, t);
    return said === each ? each : t('%1, in code %2', said, each);
  });
  return t('Compressor: %1.', words.join(t('; then ')));
}

/** Name the last axis after compression: a tile, a vector, or what it was. */
export function lastAxis(text: string, before: string): string {
  const { name } = readCompressor(text);
  const names: Readonly<Record<string, string>> = { Tile: 'tile', Projection: 'vector', Histogram: 'bin' };
  return own(names, name) ?? before;
}

/** An axis of a tensor in words; a name that is no word here stays as the model has it. */
export function axisWords(axis: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    position: t('position'),
    feature: t('feature'),
    head: t('head'),
    query: t('query'),
    key: t('key'),
    token: t('token'),
    expert: t('expert'),
    tile: t('tile'),
    vector: t('vector'),
    bin: t('bin')
  };
  return own(words, axis) ?? axis;
}

/** Titles that a run brings: those of this package are translated, and others stay as they are. */
const RUN_TITLES: readonly string[] = translatedLater([
  'Queries, keys and values',
  'Attention probabilities',
  'Attention context',
  'MLP1 output',
  'MLP2 output',
  'Attention output',
  'Hidden states',
  'Router probabilities',
  'Expert outputs',
  'Input tokens',
  'Tile',
  'No compression',
  'Counts only',
  'Projection',
  'Peaks',
  'Histogram',
  'Additive Gaussian noise',
  'Multiplicative uniform noise',
  'Bit flips',
  'Constant offset',
  'Add a vector',
  'MLP output',
  'Between layers',
  'Tiles',
  'Reduction',
  'Vectors',
  'Cells',
  'Bins',
  'Logarithmic',
  'Limit',
  'Rate',
  'Bit',
  'Offset',
  'Fraction',
  'Coefficient',
  'Normalise',
  'Measured statistics',
  'Every how many steps',
  'Parameters',
  'Gradients',
  'Activations',
  'Activation gradients',
  'Residual stream',
  'Residual stream gradients',
  'Attention entropy',
  'Largest attention',
  'Router entropy',
  'Router similarity',
  'Stable ranks',
  'Kernel norms',
  'Optimizer, mean',
  'Optimizer, square',
  'Gradients before reduction',
  'Gradients after each micro-batch',
  "Gradients along the optimizer's mean",
  'Parameters before the step',
  'Communication',
  'Numbers of what the model is given',
  'Weights',
  'At every step whose number it divides; 0 is off.'
]);

/** The title of a flag, a compressor, a perturbation, a site or a parameter, which came with a run. */
export const titleWords = (title: string, t: Translate): string =>
  RUN_TITLES.includes(title) ? t(title) : title;

/** Phases of a run in words. */
export const phaseWords = (t: Translate): Readonly<Record<Phase, string>> => ({
  train: t('train'),
  eval: t('eval'),
  generate: t('generate')
});

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
  const title = info ? titleWords(info.title, t) : flag;
  const words = part ? t('%1, part %2', title, part) : title;
  return pass === 'backward' ? t('Gradient of %1', words) : words;
}

/** Say what a bounded store has thinned out of what is drawn, where only whole tensors can enter. */
export function thinnedWords(memory: IKept, t: Translate): string[] {
  return memory.thinnedTo !== null && memory.reducedRows > 0
    ? [
        t(
          'Up to step %1 tensors are thinned out to stay within memory: of every few the ones with the least and the greatest rms are kept (%2 of %3).',
          formatInteger(memory.thinnedTo),
          formatBytes(memory.bytes),
          formatBytes(memory.limitBytes)
        )
      ]
    : [];
}

/**
 * Say in which tiers a bounded store keeps what a history shows, and what they take.
 *
 * @param kept - What it still has, from which step on, and how many rows are gone.
 */
export function tierWords(
  { first, evictedRows, ...memory }: IKept & { readonly first: number; readonly evictedRows: number },
  t: Translate
): string[] {
  const bytes = t('%1 of %2', formatBytes(memory.bytes), formatBytes(memory.limitBytes));
  if (memory.thinnedTo === null) {
    return [t('Every tensor since step %1 is kept in this page (%2).', formatInteger(first), bytes)];
  }
  return [
    t(
      'Kept in this page (%1): every tensor after step %2; of earlier ones those with the least and the greatest rms of every few, and of %3 more their statistics.',
      bytes,
      formatInteger(memory.thinnedTo),
      formatInteger(memory.reducedRows)
    ),
    ...(evictedRows > 0
      ? [t('The oldest are statistics of the extremes only: %1 rows are gone.', formatInteger(evictedRows))]
      : [])
  ];
}

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
        'Of each %1 traced steps the one that departs most is shown: the others were not sent.',
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

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
