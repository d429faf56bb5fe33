import { COLORS, formatBytes, formatInteger, formatNumber } from '../../../../charts';
import type { IPiece, ITimelineLane } from '../../client/timeline-api';
import { own } from '../../../../protocol/own';
import type { ITip } from '../../../../views/shared/tip';
import type { Translate } from '../../../../views/shared/translate';

/** Kinds in the order of the legend, each with the place of its colour in the palette. Greys are left for those who wait. */
const PLACES: Readonly<Record<string, number>> = {
  forward: 0,
  backward: 1,
  wgrad: 5,
  optimizer: 2,
  data: 3,
  checkpoint: 6,
  user: 4
};
const WAITING: Readonly<Record<string, readonly [light: string, dark: string]>> = {
  collective: ['#8a8a8a', '#7a7a7a'],
  send: ['#c4c4c4', '#4c4c4c'],
  receive: ['#b0b0b0', '#5c5c5c']
};

/** All kinds that are drawn. */
export const KINDS: readonly string[] = [...Object.keys(PLACES), ...Object.keys(WAITING)];

/** The colour of a kind. */
export function kindColor(kind: string, isDark: boolean): string {
  const waits = own(WAITING, kind);
  if (waits) {
    return isDark ? waits[1] : waits[0];
  }
  const { light, dark } = COLORS.categorical;
  return (isDark ? dark : light)[own(PLACES, kind) ?? 7] ?? '#888888';
}

/** A kind in words. */
export function kindWords(kind: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    forward: t('forward'),
    backward: t('backward'),
    wgrad: t('weight gradients'),
    optimizer: t('optimizer'),
    data: t('waits for data'),
    checkpoint: t('checkpoint'),
    user: t('your own spans'),
    collective: t('blocked in a collective'),
    send: t('blocked in a send'),
    receive: t('blocked in a receive')
  };
  return own(words, kind) ?? kind;
}

/** A duration or a time, with its unit. */
export function timeWords(ms: number): string {
  const size = Math.abs(ms);
  if (size >= 1000) {
    return `${formatNumber(ms / 1000, 4)} s`;
  }
  return size >= 1 || ms === 0 ? `${formatNumber(ms, 4)} ms` : `${formatNumber(ms * 1000, 4)} µs`;
}

/** A rank, with its stage where there are such. */
export function laneWords({ rank, stage }: ITimelineLane, t: Translate): string {
  return stage < 0
    ? t('rank %1', formatInteger(rank))
    : t('rank %1, stage %2', formatInteger(rank), formatInteger(stage));
}

/** What a piece is and where, as a tooltip. */
export function pieceTip(piece: IPiece, lane: ITimelineLane, isDark: boolean, t: Translate): ITip {
  const { kind, name, count, begin, end, step, microBatch, bytes, group, peer } = piece;
  const what = name === '' ? kindWords(kind, t) : name;
  const line = (there: boolean, label: string, value: () => string): ITip['lines'] =>
    there ? [{ name: label, value: value() }] : [];
  return {
    heading: laneWords(lane, t),
    lines: [
      { name: what, value: timeWords(end - begin), color: kindColor(kind, isDark) },
      ...line(count > 1, t('spans, summed'), () => formatInteger(count)),
      ...line(step >= 0, t('step'), () => formatInteger(step)),
      ...line(microBatch >= 0, t('micro-batch'), () => formatInteger(microBatch)),
      ...line(peer >= 0, t('other rank'), () => formatInteger(peer)),
      ...line(group !== '', t('ranks'), () => group),
      ...line(bytes > 0, t('size'), () => formatBytes(bytes)),
      { name: t('from'), value: timeWords(begin) }
    ]
  };
}
